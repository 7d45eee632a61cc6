//! `--disk DIR=SIZE`.

use std::path::PathBuf;
use std::str::FromStr;

use highwater_memory::spill::Bandwidths;
use highwater_memory::{Bytes, SizeError};
use serde::{Deserialize, Serialize};

/// A folder that tensors may wait in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// The folder. Nothing is left in it when the run ends, however it ends.
    pub folder: PathBuf,
    /// The most bytes that they may take there.
    pub bytes: Bytes,
    /// What the disk does in a second: found when a run starts or is planned, and no setting.
    #[serde(skip)]
    pub rates: Option<Bandwidths>,
}

impl FromStr for DiskConfig {
    type Err = String;

    /// Reads `DIR=SIZE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (folder, bytes) = text
            .rsplit_once('=')
            .filter(|(folder, _)| !folder.is_empty())
            .ok_or("expected a folder and a size, such as /data=40GiB")?;
        let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
        let bytes: Bytes = bytes
            .parse()
            .map_err(|error: SizeError| error.to_string())?;
        Ok(Self {
            folder,
            bytes,
            rates: None,
        })
    }
}
