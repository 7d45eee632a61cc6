//! The list of a state's files, with sizes and hashes, and a hash of itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{MANIFEST, SavedError};

/// Above this many bytes, nothing is taken for a manifest.
pub(super) const MANIFEST_BYTES: u64 = 16 << 20;

const FORMAT: &str = "highwater saved state";
const VERSION: u64 = 1;

/// One file of a saved state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name in the state's folder.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The BLAKE3 hash of its contents, in 64 hexadecimal digits.
    pub blake3: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    content: Content,
    /// The hash of the content, as it is written.
    blake3: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: String,
    version: u64,
    name: String,
    files: Vec<FileEntry>,
}

/// As much as every version of the format has.
#[derive(Deserialize)]
struct AnyVersion {
    content: AnyContent,
}

#[derive(Deserialize)]
struct AnyContent {
    format: String,
    version: u64,
}

/// The manifest of a state with these files; an error when it would be too large.
pub(super) fn encode(name: &str, files: &[FileEntry]) -> Result<Vec<u8>, SavedError> {
    let content = Content {
        format: FORMAT.into(),
        version: VERSION,
        name: name.into(),
        files: files.to_vec(),
    };
    let bytes = encode_content(content)
        .ok()
        .filter(|bytes| bytes.len() as u64 <= MANIFEST_BYTES);
    bytes.ok_or(SavedError::TooManyFiles(files.len()))
}

fn encode_content(content: Content) -> serde_json::Result<Vec<u8>> {
    let blake3 = blake3::hash(&serde_json::to_vec(&content)?)
        .to_hex()
        .to_string();
    let mut bytes = serde_json::to_vec_pretty(&Manifest { content, blake3 })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The name and files of the state in `folder`, from its manifest's bytes. Only what `encode` has
/// written is taken, to the byte.
pub(super) fn decode(folder: &Path, bytes: &[u8]) -> Result<(String, Vec<FileEntry>), SavedError> {
    let path = folder.join(MANIFEST);
    let damaged = |problem: String| SavedError::Manifest {
        path: path.clone(),
        problem,
    };
    let json = |error: serde_json::Error| damaged(error.to_string());
    let AnyVersion { content: found } = serde_json::from_slice(bytes).map_err(json)?;
    if found.format != FORMAT {
        return Err(damaged("it describes something else".into()));
    }
    if found.version != VERSION {
        return Err(SavedError::Version {
            path,
            version: found.version,
        });
    }
    let Manifest { content, .. } = serde_json::from_slice(bytes).map_err(json)?;
    let (name, files) = (content.name.clone(), content.files.clone());
    if encode_content(content).map_err(json)? != bytes {
        return Err(damaged(
            "its contents have changed since it was written".into(),
        ));
    }
    match files
        .iter()
        .enumerate()
        .find(|(i, file)| !is_file_name(&file.name, &files[..*i]))
    {
        Some((_, file)) => Err(SavedError::FileName(file.name.clone())),
        None => Ok((name, files)),
    }
}

/// Whether a file of this name can be added to a state that has `others`.
pub(super) fn is_file_name(name: &str, others: &[FileEntry]) -> bool {
    (1..=200).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_graphic() && !"/\\:*?\"<>|".contains(c))
        && !name.starts_with('.')
        && name != MANIFEST
        && others.iter().all(|other| other.name != name)
}
