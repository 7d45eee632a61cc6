//! Lists the methods of `Tensor` that stand in the operations' folders: a module for each `tensor.rs`
//! there.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

fn main() -> io::Result<()> {
    let variable = |name| {
        #[expect(
            clippy::disallowed_methods,
            reason = "that is how Cargo talks to build scripts"
        )]
        let value = std::env::var(name);
        value.map_err(|error| io::Error::other(format!("{name}: {error}")))
    };
    let folders = PathBuf::from(variable("DEP_HIGHWATER_OPS_FOLDERS")?);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", folders.display());
    let mut modules = String::new();
    for (name, file) in methods(&folders)? {
        let path = file
            .to_str()
            .ok_or_else(|| io::Error::other("a path that is no text"))?;
        writeln!(modules, "#[path = {path:?}]\nmod {name};").map_err(io::Error::other)?;
    }
    fs::write(
        Path::new(&variable("OUT_DIR")?).join("operations.rs"),
        modules,
    )
}

/// The folders with methods of tensors, by name, and the files.
fn methods(folders: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut methods = Vec::new();
    for folder in fs::read_dir(folders)? {
        let folder = folder?;
        let file = folder.path().join("tensor.rs");
        if file.is_file() {
            methods.push((folder.file_name().to_string_lossy().into_owned(), file));
        }
    }
    methods.sort();
    Ok(methods)
}
