//! `merge`: adds adapters to the weights of their model.

mod merging;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use highwater::{Bytes, Engine};
use highwater_memory::files::Draft;
use highwater_memory::saved::write_atomic;
use highwater_memory::{DiskFiles, Files};
use highwater_models::adapter::{CONFIG, WEIGHTS};
use highwater_models::module_file::file_dtype;
use highwater_models::{Merge, SHARD_BYTES};
use merging::{MergedDtype, check_memory, untied};

use crate::config::{ModelSource, RunConfig};
use crate::error::Failure;
use crate::folder::adapters::check_base;
use crate::folder::new::check_new;
use crate::folder::{Which, copies, model_folder};
use crate::model::Blueprint;
use crate::model::trained::trained;
use crate::terminal::output;
use crate::terminal::signals::end_tidily;

/// `merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Folder of a LoRA run, or of adapters in PEFT's format
    pub dir: PathBuf,

    /// Which model of a run.
    #[command(flatten)]
    pub which: Which,

    /// Folder of the base model [default: the one that the run or the adapters name]
    #[arg(long, value_name = "FOLDER")]
    pub model: Option<PathBuf>,

    /// New folder for the merged model
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Maximum size of a weight file [default: 50GB]
    #[arg(long, value_name = "SIZE")]
    pub max_shard_size: Option<Bytes>,

    /// Data type of the merged weights [default: that of each weight in the base model]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<MergedDtype>,

    /// Memory budget of the whole process [default: the minimum, which is small: weights are read in pieces]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
}

/// The folder of the model that adapters are for: of a run, or that their file names.
fn base(files: &dyn Files, run: Option<&RunConfig>, folder: &Path) -> Result<PathBuf, Failure> {
    if let Some(run) = run
        && let ModelSource::Folder(base) = &run.model.source
    {
        check_base(files, run)?;
        return Ok(base.clone());
    }
    let (path, named) = settings(files, folder)?;
    let unnamed = || {
        Failure::usage(format!("{}: it does not name a model", path.display()))
            .hint("use --model FOLDER with the model that the adapters were trained for")
    };
    match named {
        Some(named) if files.metadata(&named)?.is_some() => Ok(named),
        // A name of the hub.
        Some(named) => Err(Failure::usage(format!(
            "{}: there is no such folder here",
            named.display()
        ))
        .hint("use --model FOLDER with the model that the adapters were trained for")),
        None => Err(unnamed()),
    }
}

/// The settings' file of adapters, and the model that it names.
fn settings(files: &dyn Files, folder: &Path) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let path = folder.join(CONFIG);
    let mut file = files.open(&path)?;
    let mut json = vec![0; file.bytes().min(1 << 20) as usize];
    file.read_exact_at(0, &mut json)?;
    let fields = serde_json::from_slice::<serde_json::Value>(&json).ok();
    let named =
        fields.and_then(|fields| Some(PathBuf::from(fields["base_model_name_or_path"].as_str()?)));
    Ok((path, named))
}

/// That a folder that was named has the model that adapters were trained beside, as far as anything says.
fn check_named(
    files: &dyn Files,
    run: Option<&RunConfig>,
    folder: &Path,
    named: &Path,
) -> Result<(), Failure> {
    if let Some(run) = run {
        let mut run = run.clone();
        run.model.source = ModelSource::Folder(named.to_owned());
        return check_base(files, &run);
    }
    let (_, trained) = settings(files, folder)?;
    let last = |path: &Path| path.file_name().map(std::ffi::OsStr::to_owned);
    if let Some(trained) = trained.filter(|trained| last(trained) != last(named)) {
        output::news(&format!(
            "note: these adapters name {} as their model, and it is {} that they are added to",
            trained.display(),
            named.display()
        ));
    }
    Ok(())
}

/// Why there is nothing to merge.
fn missing(files: &dyn Files, dir: &Path, run: Option<&RunConfig>) -> Failure {
    let name = dir.display();
    let what = match files.metadata(dir) {
        Ok(None) => "there is no such folder".to_owned(),
        _ => format!("there are no adapters ({WEIGHTS})"),
    };
    let failure = Failure::usage(format!("{name}: {what}"));
    match run {
        Some(run) if run.model.lora.is_some() => failure.hint(format!(
            "the run has not saved anything yet: `highwater resume {name}` continues it"
        )),
        Some(_) => failure.hint("the run trained the whole model: there is nothing to merge"),
        None => failure.hint("give the folder of a finished --lora run, or one that PEFT saved"),
    }
}

/// Adds adapters to the weights of their model and writes that as a model folder.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn merge(args: &MergeArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    let run = RunConfig::of_folder(&files, &args.dir)?;
    let run = run.as_ref();
    let missing = || missing(&files, &args.dir, run);
    let (trained, folder) = trained(&files, (&args.dir, run), args.which)?.ok_or_else(missing)?;
    let from = match &args.model {
        Some(from) => {
            check_named(&files, run, &folder, from)?;
            from.clone()
        }
        None => base(&files, run, &folder)?,
    };
    model_folder::check_weights(&files, &from)?;
    check_new(&args.out)?;
    let blueprint = Blueprint::read(&files, &from.join("config.json"))?;
    let config = blueprint.text()?;
    // Of the model its names and shapes are asked for, no numbers.
    let engine = Engine::builder().arena(1 << 50).dry_run().build()?;
    let model = config.build(&engine)?;
    end_tidily().map_err(|error| Failure::system("listen to signals", &error))?;
    // What a saved state has is written as PEFT's files first, beside the new folder.
    if let Some(parent) = args.out.parent() {
        files.create_dir_all(parent)?;
    }
    let (peft, _draft) = trained.as_folder(&files, config, &args.out)?;
    let dtype = args.dtype.map(MergedDtype::of);
    let merge = Merge::new(&files, [&from, &peft], &*model, dtype.map(file_dtype))?;
    check_memory(&merge, args.memory)?;
    if let Some(note) = merge.note() {
        output::news(note);
    }
    let lora = run.and_then(|run| run.model.lora.as_ref());
    if lora.is_some_and(|lora| lora.quantize.is_some()) {
        output::news(
            "note: the adapters were trained with quantized weights and are added to the model's own, as PEFT does: \
            its numbers are not quite those of the run",
        );
    }
    // All of it or nothing.
    let new = Draft::folder(&files, &args.out)?;
    let draft = new.path();
    let most = args.max_shard_size.map_or(SHARD_BYTES, |most| most.0);
    merge.write(draft, most)?;
    let json = match dtype {
        Some(dtype) => copies::with_dtype(&config.to_json(), dtype)?,
        None => config.to_json(),
    };
    let json = if merge.unties() { untied(&json)? } else { json };
    write_atomic(&files, &draft.join("config.json"), json.as_bytes())?;
    copies::copy_beside(&files, &from, draft)?;
    // What the run took, where that was something else.
    copies::copy_beside(&files, &folder, draft)?;
    files.sync_dir(draft)?;
    // Another process may have made it meanwhile.
    check_new(&args.out)?;
    new.persist()?;
    if merge.unties() {
        output::news(
            "note: the head and the token embedding were tied and are now separate tensors, because the adapters \
            changed one of them",
        );
    }
    let (layers, whole) = (merge.layers(), merge.replaced());
    let whole = match whole {
        0 => String::new(),
        whole => format!(", {whole} tensors in place of the model's"),
    };
    output::result(&format!(
        "merged {layers} layers{whole}: {}",
        args.out.display()
    ));
    Ok(ExitCode::SUCCESS)
}
