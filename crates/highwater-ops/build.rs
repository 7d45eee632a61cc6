//! Tells the crate `highwater` where the operations' folders are.

use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?;
    let folders = PathBuf::from(here).join("src");
    println!("cargo::rerun-if-changed=build.rs");
    // Where they are no more, they are looked for anew.
    println!("cargo::rerun-if-changed={}", folders.display());
    println!("cargo::metadata=folders={}", folders.display());
    Ok(())
}
