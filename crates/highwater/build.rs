//! Says where the methods of `Tensor` are listed that stand in the operations' folders.

fn main() -> Result<(), std::env::VarError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "that is how Cargo talks to build scripts"
    )]
    let list = std::env::var("DEP_HIGHWATER_OPS_METHODS")?;
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=METHODS={list}");
    Ok(())
}
