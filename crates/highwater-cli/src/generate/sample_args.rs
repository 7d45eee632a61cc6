//! Flags of sampling, shared by `generate` and `chat`.

use std::path::PathBuf;

use clap::Args;
use highwater_memory::Bytes;
use highwater_models::Sampling;

use super::generation_config::GenerationConfig;
use crate::error::Failure;
use crate::folder::Which;

/// A trained model, and how tokens are drawn from it: shared by `generate` and `chat`.
#[derive(Args, Debug)]
pub struct SampleArgs {
    /// Folder of a run
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Which model of a run.
    #[command(flatten)]
    pub which: Which,

    /// A Hugging Face model folder, instead of a run
    #[arg(long, value_name = "FOLDER", conflicts_with = "dir")]
    pub model: Option<PathBuf>,

    /// Sampling temperature. 0 always takes the most likely token [default: from generation_config.json, otherwise
    /// 0.8]
    #[arg(long, value_name = "X")]
    pub temperature: Option<f64>,

    /// Sample from the N most likely tokens; 0 for all [default: from generation_config.json, otherwise all]
    #[arg(long, value_name = "N")]
    pub top_k: Option<u32>,

    /// Sample from the most likely tokens whose probabilities add up to P (nucleus sampling) [default: from
    /// generation_config.json, otherwise 1]
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,

    /// Sample from tokens with at least P times the probability of the most likely one [default: from
    /// generation_config.json, otherwise 0]
    #[arg(long, value_name = "P")]
    pub min_p: Option<f64>,

    /// Repetition penalty: above 1, tokens that the text already has become less likely [default: from
    /// generation_config.json, otherwise 1]
    #[arg(long, value_name = "X")]
    pub repetition_penalty: Option<f64>,

    /// Stop before this text. May be repeated [default: from generation_config.json, otherwise none]
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,

    /// Seed of sampling
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Memory budget of the whole process [default: the run's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// Threads to compute with [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

impl SampleArgs {
    /// That the flags are possible.
    ///
    /// # Errors
    /// [`Failure`] for the first that is not.
    pub fn check(&self) -> Result<(), Failure> {
        let threads = self.threads.is_none_or(|n| (1..=1024).contains(&n));
        if !threads {
            return Err(Failure::usage("--threads must be 1 to 1024"));
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(Failure::usage("--stop must have at least one character"));
        }
        self.sampling(&GenerationConfig::default()).map(drop)
    }

    /// How tokens are drawn: as flags say, otherwise as the model's file does.
    ///
    /// # Errors
    /// [`Failure`] for numbers that are not possible.
    pub fn sampling(&self, stated: &GenerationConfig) -> Result<Sampling, Failure> {
        let sampling = Sampling {
            temperature: self.temperature.or(stated.temperature).unwrap_or(0.8),
            // 0 means all, in the file too.
            top_k: self
                .top_k
                .or(stated.top_k)
                .filter(|&top_k| top_k > 0)
                .map(|top_k| top_k as usize),
            top_p: self.top_p.or(stated.top_p).unwrap_or(1.0),
            min_p: self.min_p.or(stated.min_p).unwrap_or(0.0),
            repetition_penalty: self
                .repetition_penalty
                .or(stated.repetition_penalty)
                .unwrap_or(1.0),
            seed: self.seed,
            context: usize::MAX,
        };
        let penalty = sampling.repetition_penalty;
        let wrong = [
            (
                !(sampling.temperature.is_finite() && sampling.temperature >= 0.0),
                "--temperature must be at least 0",
            ),
            (
                !(sampling.top_p > 0.0 && sampling.top_p <= 1.0),
                "--top-p must be above 0 and at most 1",
            ),
            (
                !(0.0..=1.0).contains(&sampling.min_p),
                "--min-p must be from 0 to 1",
            ),
            (
                !(penalty.is_finite() && penalty > 0.0),
                "--repetition-penalty must be a number above 0",
            ),
        ];
        let wrong = wrong.into_iter().find(|(is_wrong, _)| *is_wrong);
        wrong.map_or(Ok(sampling), |(_, message)| Err(Failure::usage(message)))
    }
}
