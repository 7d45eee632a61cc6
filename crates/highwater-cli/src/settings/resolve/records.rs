//! From flags to how records are read.

use std::path::Path;

use highwater_memory::Files;

use crate::args::Settings;
use crate::args::table::Table;
use crate::config::RecordsConfig;
use crate::data::records::{CHATML, has_records};
use crate::error::Failure;

impl Settings {
    /// The settings, for data of records; a failure where flags are given and the data has none.
    ///
    /// # Errors
    /// [`Failure`] for flags that mean nothing to the data, and for a template that is not there.
    pub fn records_config(
        &self,
        files: &dyn Files,
        data: Option<&Path>,
    ) -> Result<Option<RecordsConfig>, Failure> {
        let has_records = match data {
            Some(path) => has_records(files, path)?,
            None => false,
        };
        if !has_records {
            let mut given = Self::table()
                .iter()
                .filter(|setting| setting.is_given(self));
            return match given.find(|setting| setting.is_in("data.records.")) {
                None => Ok(None),
                Some(setting) => Err(Failure::usage(format!(
                    "--{} has no effect: the data has no examples, such as conversations",
                    setting.flag
                ))
                .hint("files of examples end in .jsonl, .json, .csv, .tsv or .parquet")),
            };
        }
        let chat_template = match self.chat_template.as_deref() {
            Some(name) if name != CHATML => {
                let path = Path::new(name);
                if files.metadata(path)?.is_none() {
                    let message = format!("--chat-template: there is no file `{name}`");
                    return Err(Failure::usage(message).hint("give a file, or chatml"));
                }
                let path = std::path::absolute(path);
                let path = path.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
                Some(path.display().to_string())
            }
            named => named.map(str::to_owned),
        };
        Ok(Some(RecordsConfig {
            loss_on: self.loss_on.unwrap_or_default(),
            chat_template,
            packing: self.no_packing != Some(true),
            map: self.map.iter().flatten().cloned().collect(),
        }))
    }
}
