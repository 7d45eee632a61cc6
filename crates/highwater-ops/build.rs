//! Tells the crate `highwater` where the operations' folders are.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=folders={}/src", env!("CARGO_MANIFEST_DIR"));
}
