//! Lists what stands in the operations' folders for others to compile: methods of `Tensor`
//! (`tensor.rs`, for the crate `highwater`) and nodes for PyTorch's cases (`fixtures.rs`, for the test
//! of that name).

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

fn main() -> io::Result<()> {
    let variable = |name| std::env::var_os(name).ok_or(io::ErrorKind::NotFound);
    let folders = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("src/ops");
    println!("cargo::rerun-if-changed=build.rs");
    // Where they are no more, they are looked for anew.
    println!("cargo::rerun-if-changed={}", folders.display());
    let out = PathBuf::from(variable("OUT_DIR")?);
    let methods = out.join("tensor.rs");
    fs::write(&methods, modules(&of_folders(&folders, "tensor.rs")?)?)?;
    println!("cargo::metadata=methods={}", methods.display());
    let fixtures = of_folders(&folders, "fixtures.rs")?;
    let mut list = modules(&fixtures)? + "const FOLDERS: &[(&str, MakeNodes)] = &[\n";
    for (name, _) in fixtures {
        writeln!(list, "({name:?}, {name}::nodes),").map_err(io::Error::other)?;
    }
    fs::write(out.join("fixtures.rs"), list + "];\n")
}

/// The folders with such a file, by name, and the files.
fn of_folders(folders: &Path, file: &str) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(folders)? {
        let folder = folder?;
        let file = folder.path().join(file);
        if file.is_file() {
            found.push((folder.file_name().to_string_lossy().into_owned(), file));
        }
    }
    found.sort();
    Ok(found)
}

/// A module for each.
fn modules(files: &[(String, PathBuf)]) -> io::Result<String> {
    let mut modules = String::new();
    for (name, file) in files {
        let path = file
            .to_str()
            .ok_or_else(|| io::Error::other("a path that is no text"))?;
        writeln!(modules, "#[path = {path:?}]\nmod {name};").map_err(io::Error::other)?;
    }
    Ok(modules)
}
