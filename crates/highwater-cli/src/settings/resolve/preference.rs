//! From flags to how pairs of answers are learnt from.

use highwater_models::preference::DpoLoss;

use crate::args::Settings;
use crate::config::{PreferenceConfig, PreferenceMethod};
use crate::error::Failure;

/// What the paper of `exo_pair` takes.
const EXO_SMOOTHING: f64 = 1e-3;

impl Settings {
    /// The settings, if pairs are learnt from.
    ///
    /// # Errors
    /// [`Failure`] for data without records, and for a weight alone.
    pub(super) fn preference_config(
        &self,
        has_records: bool,
    ) -> Result<Option<PreferenceConfig>, Failure> {
        let Some(method) = self.preference else {
            let alone = [
                ("beta", self.beta.is_some()),
                ("dpo-loss", self.dpo_loss.is_some()),
            ];
            return match alone.into_iter().find(|(_, given)| *given) {
                None => Ok(None),
                Some((flag, _)) => {
                    let message = format!("--{flag} has no effect without --preference");
                    Err(Failure::usage(message).hint("use --preference dpo, or remove it"))
                }
            };
        };
        if !has_records {
            let message = "--preference needs pairs of chosen and rejected answers, and the data has no examples";
            return Err(Failure::usage(message).hint(
                "use --data with a file whose examples have the fields chosen and \
                rejected",
            ));
        }
        let of_dpo = [
            ("dpo-loss", self.dpo_loss.is_some()),
            ("label-smoothing", self.label_smoothing.is_some()),
        ];
        if method == PreferenceMethod::Orpo
            && let Some((flag, _)) = of_dpo.into_iter().find(|(_, given)| *given)
        {
            let message = format!("--{flag} has no effect with --preference orpo");
            return Err(Failure::usage(message).hint("remove it, or use --preference dpo"));
        }
        let dpo_loss = self.dpo_loss.unwrap_or_default();
        Ok(Some(PreferenceConfig {
            method,
            beta: self.beta.unwrap_or(0.1),
            dpo_loss,
            label_smoothing: self.smoothing(dpo_loss)?,
        }))
    }

    /// The label smoothing of what is learnt from by itself, not in pairs.
    pub(super) fn cross_entropy_smoothing(&self) -> Option<f64> {
        let given = self.label_smoothing.filter(|_| self.preference.is_none());
        given.filter(|&share| share != 0.0)
    }

    fn smoothing(&self, loss: DpoLoss) -> Result<Option<f64>, Failure> {
        match (loss, self.label_smoothing) {
            (DpoLoss::ExoPair, given) => Ok(Some(given.unwrap_or(EXO_SMOOTHING))),
            (DpoLoss::Robust, None) => {
                let message = "--dpo-loss robust needs --label-smoothing";
                let hint =
                    "set the share of pairs that are mislabeled, such as --label-smoothing 0.1";
                Err(Failure::usage(message).hint(hint))
            }
            (loss, Some(_)) if !loss.has_label_smoothing() => {
                let message = format!(
                    "--label-smoothing has no effect with --dpo-loss {}",
                    loss.name()
                );
                Err(Failure::usage(message).hint("remove it, or use --dpo-loss robust"))
            }
            (_, given) => Ok(given),
        }
    }
}
