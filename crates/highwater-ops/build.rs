//! Tells the crate `highwater` where the operations' folders are.

use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    // Read when it runs: a build folder may be carried to another checkout.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?;
    let folders = PathBuf::from(here).join("src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CARGO_MANIFEST_DIR");
    println!("cargo::metadata=folders={}", folders.display());
    Ok(())
}
