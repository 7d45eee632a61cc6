//! What provokes each error: command lines, as a user types them, in the folder that `fixtures` makes.

/// A command that fails.
pub(super) struct Case {
    /// The code of its error.
    pub(super) code: &'static str,
    /// What is wrong.
    pub(super) about: &'static str,
    /// The words behind `highwater`.
    pub(super) line: &'static str,
    /// What happens around it.
    pub(super) means: Means,
}

/// What happens around a command.
#[derive(Clone, Copy)]
pub(super) enum Means {
    /// Nothing else.
    Plain,
    /// Its results go to a disk that is full.
    FullOutput,
    /// `HF_HUB_OFFLINE` is set.
    Offline,
    /// Its address space, in KiB, is bounded by `ulimit -v`.
    AddressSpace(&'static str),
    /// The process that it starts is killed.
    KilledChild,
    /// It is asked twice, and the model's file is cut short in between.
    CutWeights,
}

const fn case(code: &'static str, about: &'static str, line: &'static str) -> Case {
    with(code, about, line, Means::Plain)
}

const fn with(code: &'static str, about: &'static str, line: &'static str, means: Means) -> Case {
    Case {
        code,
        about,
        line,
        means,
    }
}

/// All cases, by part.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [LIBRARY, USAGE, FILES, MODELS, DATA, SETTINGS, FORMATS]
        .into_iter()
        .flatten()
}

#[rustfmt::skip]
const LIBRARY: &[Case] = &[
    case("HW0101", "a single image for batch norms", "train --model resnet18 --data shapes --size 32 --batch 1 --steps 1 --threads 1 --memory 1GiB --out single"),
    case("HW0201", "a tokenizer with more tokens than the model", "generate --model ./mixed --prompt of"),
    case("HW0202", "a learning rate that is far too high", "train --data text.txt --lr 99 --schedule constant --warmup 0 --held-out 0 --steps 9 --threads 2 --out wild"),
    case("HW0205", "weights that overflow in half precision", "train --model ./overflow --data chats.jsonl --seq 64 --batch 2 --steps 40 --precision fp16 --threads 1 --memory 1GiB --out half"),
    case("HW0305", "memory that is less than its parts", "train --memory 92MiB --device-memory 30MiB --host-memory 40MiB --threads 2"),
    with("HW0305", "too little address space for any budget", "train --model ./base --data chats.jsonl --seq 64 --batch 2 --threads 1 --memory 1GiB", Means::AddressSpace("100000")),
    with("HW0306", "a process of the program that the system kills", "train --model ./base --data many.jsonl --seq 64 --batch 2 --steps 1 --threads 1 --memory 1GiB --out killed", Means::KilledChild),
    with("HW0401", "a model's file that is cut short while it is used", "chat --model ./large --chat-template chatml --tokens 2 --threads 1 --memory 64MiB", Means::CutWeights),
    case("HW0402", "a folder where a file of adapters belongs", "generate hidden --prompt of"),
];

#[rustfmt::skip]
const USAGE: &[Case] = &[
    case("HW1002", "a flag that does not exist", "train --memroy 1GiB"),
    case("HW1002", "a flag of another command", "resume run --lr 2"),
    case("HW1002", "a command that does not exist", "tain"),
    case("HW1002", "a size with an unknown unit", "train --memory 1Gibi"),
    case("HW1002", "a size that is zero", "train --memory 0"),
    case("HW1002", "a number that is too large", "train --steps 99999999999999999999"),
    case("HW1002", "two flags for one thing", "generate run --model ./base --prompt of"),
    case("HW1002", "a missing flag", "generate run"),
    case("HW1002", "an unknown value of a flag", "doctor --cpu mmx"),
    case("HW1002", "a flag of another optimizer", "train --momentum 0.9"),
    case("HW1002", "a flag of adapters alone", "train --lora-alpha 4"),
    case("HW1002", "8-bit moments without moments", "train --optimizer sgd --moments int8"),
    case("HW1002", "a flag of examples for data without examples", "train --model ./base --data text.txt --loss-on all"),
    case("HW1002", "a text setting for a classifier", "eval images --data shapes --seq 8"),
    case("HW1002", "nothing to evaluate on", "train --eval-every 1 --held-out 0"),
    case("HW1002", "held-out data without data", "train --eval-data text.txt"),
    case("HW1002", "a preset that needs a tokenizer", "train --model gpt2"),
    case("HW1002", "a classifier without images", "train --model resnet18"),
    case("HW1002", "a text setting for images", "train --model resnet18 --data shapes --seq 8"),
    case("HW1002", "text from a classifier", "generate images --prompt of"),
    case("HW1002", "an empty prompt", "generate run --prompt= --tokens 3"),
    case("HW1002", "a negative temperature", "generate run --prompt of --temperature=-1"),
    case("HW1002", "a negative temperature in the model's folder", "generate --model ./frozen --prompt of"),
    case("HW1002", "no model to continue with", "generate --prompt of"),
    case("HW1002", "no model to evaluate", "eval --data text.txt"),
    case("HW1002", "a run that does not exist", "resume nowhere"),
    case("HW1002", "a file that is no run", "resume text.txt"),
    case("HW1002", "a file that is no model", "generate text.txt --prompt of"),
    case("HW1002", "a file to merge", "merge text.txt --out merged"),
    case("HW1002", "a folder without a model", "generate nowhere --prompt of"),
    case("HW1002", "a folder that already contains a run", "train --model ./base --data chats.jsonl --seq 64 --out run"),
    case("HW1002", "a chat without a template", "chat --model ./no-tokenizer"),
    case("HW1002", "adapters to merge, and there are none", "merge base --out merged"),
    case("HW1002", "a run of the whole model to merge", "merge run --out merged"),
    case("HW1002", "a merge into a folder that is there", "merge lora --out base"),
    case("HW1002", "adapters to export", "export lora --out lora.gguf"),
    case("HW1002", "an unknown setting", "train --set training.bach=2"),
    case("HW1002", "a setting that is far too large", "train --set training.batch=1e400"),
    case("HW1002", "a setting of the wrong type", "train --set training.batch=two"),
    case("HW1002", "settings for a comparison of plans", "plan --diff run lora --batch 2"),
    case("HW1002", "a name that no model of the hub has", "plan --model hf:a/b/c"),
    case("HW1003", "training that does not fit", "train --memory 8MiB --threads 2"),
    case("HW1003", "training that does not fit, with device memory", "train --memory 128MiB --device-memory 1MiB --host-memory 40MiB --batch 2 --seq 32 --threads 2"),
    with("HW1003", "training that does not fit into the address space", "train --data text.txt --seq 256 --batch 64 --threads 1 --memory 1GiB", Means::AddressSpace("300000")),
    case("HW1003", "settings that fit in no size", "init --memory 20MiB --batch 8 --threads 1 --out small.toml"),
    case("HW1003", "an evaluation that does not fit", "eval run --data chats.jsonl --memory 8MiB --threads 2"),
    case("HW1003", "sampling that does not fit", "generate run --prompt of --memory 8MiB --threads 2"),
    case("HW1003", "a merge that does not fit", "merge lora --out merged --memory 1MiB"),
];

#[rustfmt::skip]
const FILES: &[Case] = &[
    case("HW1004", "a file where the folder of a run is to be", "train --data text.txt --steps 1 --threads 1 --out text.txt"),
    case("HW1004", "a folder where a classifier's weights belong", "train --model ./hidden-images/final --data shapes --size 32 --batch 4 --steps 1 --threads 1 --memory 1GiB"),
    case("HW1004", "an output folder below a file", "train --data text.txt --out text.txt/run"),
    with("HW1004", "results that cannot be written", "doctor --json", Means::FullOutput),
    case("HW1004", "settings that are not there", "train --config none.toml"),
    case("HW1004", "a device in place of a file", "train --data device"),
    case("HW1004", "a settings file in no folder", "init --threads 1 --out none/settings.toml"),
    case("HW1004", "a template that is not there", "chat --model ./base --chat-template none.jinja"),
    case("HW1004", "data that has changed since the run began", "resume changed --steps 3"),
    case("HW1004", "a run whose model was moved", "resume strayed --steps 3"),
    case("HW1004", "adapters whose model was moved", "generate strayed --prompt of"),
    case("HW1004", "a run whose data was moved", "resume dry --steps 3"),
    case("HW1004", "a run's model that was edited", "resume edited-model"),
    case("HW1005", "a loss that overflows", "eval --model ./overflow --data chats.jsonl --seq 64 --threads 1 --memory 1GiB"),
    case("HW1005", "a next token that overflows", "generate --model ./overflow --prompt of"),
    case("HW1010", "saved states that need more than the disk has", "train --steps 1000000000 --save-every 1 --keep 1000000000 --threads 2 --out many"),
    case("HW1010", "a disk that fills up", "resume full --steps 3"),
    case("HW1011", "a folder for `--disk` that is not there", "train --disk none=1GiB"),
    case("HW1011", "a file in its place", "train --disk text.txt=1GiB"),
];

#[rustfmt::skip]
const MODELS: &[Case] = &[
    case("HW1012", "saved states that are all damaged", "resume damaged --steps 3"),
    case("HW1013", "adapters that are cut short", "generate torn --prompt of"),
    case("HW1013", "a classifier's weights that are cut short", "train --model ./torn-images/final --data shapes --size 32 --batch 4 --steps 1 --threads 1 --memory 1GiB"),
    case("HW1013", "a NaN in the weights", "eval --model ./nan --data chats.jsonl --seq 64 --threads 1 --memory 1GiB"),
    case("HW1013", "weights that are cut short", "train --model ./cut --data chats.jsonl --seq 64"),
    case("HW1013", "an empty file of weights", "train --model ./empty --data chats.jsonl --seq 64"),
    case("HW1013", "fewer layers in config.json", "train --model ./fewer --data chats.jsonl --seq 64"),
    case("HW1013", "more layers in config.json", "train --model ./more --data chats.jsonl --seq 64"),
    case("HW1013", "another shape in config.json", "train --model ./wide --data chats.jsonl --seq 64"),
    case("HW1013", "no weights", "train --model ./no-weights --data chats.jsonl --seq 64"),
    case("HW1014", "a tokenizer of another format", "train --model ./base --data chats.jsonl --seq 64 --tokenizer nonsense.json"),
    case("HW1014", "a tokenizer of another format, in an export", "export bad-tokenizer --out model.gguf"),
];

#[rustfmt::skip]
const DATA: &[Case] = &[
    case("HW1020", "data that is not there", "train --data none.txt"),
    case("HW1020", "no folder of images", "train --model resnet18 --data none"),
    case("HW1021", "a text shorter than a sequence", "train --data short.txt"),
    case("HW1021", "a text shorter than a batch", "train --data short.txt --batch 8 --seq 2 --order sequential"),
    case("HW1021", "fewer images than a batch", "train --model resnet18 --data shapes --size 32 --batch 99"),
    case("HW1022", "a tokenizer of another model", "train --data text.txt --tokenizer base/tokenizer.json"),
    case("HW1023", "tokens of another model", "train --data tokens.bin"),
    case("HW1024", "text that is not UTF-8", "train --model ./base --data latin.txt --seq 64"),
    case("HW1024", "an empty text", "train --data empty.txt"),
    case("HW1024", "a file that is not NumPy's", "train --data model.npy"),
    case("HW1024", "a folder without classes", "train --model resnet18 --data nothing"),
    case("HW1024", "a file that is not an image", "train --model resnet18 --data broken --size 32 --batch 1"),
];

#[rustfmt::skip]
const SETTINGS: &[Case] = &[
    case("HW1030", "a size without its unit", "train --memory 1"),
    case("HW1030", "a negative learning rate", "train --lr -1"),
    case("HW1030", "a negative learning rate by its setting", "train --set optimizer.lr=-1"),
    case("HW1030", "a negative learning rate in a file", "train --config negative.toml"),
    case("HW1030", "a longer sequence than the model reads", "train --seq 1024"),
    case("HW1030", "memory for less than its parts", "train --memory 64MiB --device-memory 30MiB --host-memory 40MiB"),
    case("HW1030", "too many threads", "train --threads 5000"),
    case("HW1030", "adapters of rank 0", "train --model ./base --data chats.jsonl --lora 0"),
    case("HW1031", "a file of settings that is no text", "train --config base/model.safetensors"),
    case("HW1031", "an unknown setting in a file", "train --config unknown.toml"),
    case("HW1031", "a file that is not TOML", "train --config torn.toml"),
    case("HW1031", "a plan in place of settings", "train --config run/plan.json"),
    case("HW1031", "a run's settings that were edited", "resume edited"),
    case("HW1032", "a model folder that is not there", "train --model ./nowhere"),
    case("HW1032", "a misspelt preset", "train --model gpt2-nan"),
    case("HW1032", "the folder of a run in place of a model's", "train --model ./run"),
    case("HW1032", "the folder of a run with adapters in place of a model's", "train --model ./lora"),
    case("HW1033", "a family that is not built", "train --model ./family --data chats.jsonl"),
    case("HW1033", "positions that are not built", "train --model ./rope --data chats.jsonl"),
    case("HW1033", "a quantized model", "train --model ./quantized --data chats.jsonl"),
    case("HW1033", "heads that do not divide", "train --model ./heads --data chats.jsonl"),
    case("HW1033", "a text in place of a number", "train --model ./type --data chats.jsonl"),
    case("HW1033", "a config.json that is cut short", "train --model ./torn-config --data chats.jsonl"),
    case("HW1033", "a generation_config.json with a text in place of a number", "generate --model ./hot --prompt of"),
    case("HW1034", "pickled weights", "train --model ./pickled --data chats.jsonl"),
];

#[rustfmt::skip]
const FORMATS: &[Case] = &[
    case("HW1041", "adapters in place of a model", "train --model ./lora/final"),
    case("HW1041", "adapters for a preset", "train --lora 4"),
    case("HW1041", "layers that the model lacks", "train --model ./base --data chats.jsonl --seq 64 --lora 2 --lora-targets c_attn"),
    case("HW1041", "quantized weights of a family that has none", "plan --model gpt2-nano --lora 4 --quantize nf4"),
    case("HW1041", "adapters of another model", "merge lora --out merged --model ./nan"),
    case("HW1041", "adapters of another kind", "merge loha --out merged"),
    case("HW1041", "adapters of another rank than they say", "merge other-rank --out merged"),
    case("HW1042", "a role that does not exist", "train --model ./base --data robot.jsonl --seq 64"),
    case("HW1042", "a number in place of a text", "data show field.jsonl --model ./base"),
    case("HW1042", "a line that is cut short", "data show half.jsonl --model ./base"),
    case("HW1042", "a row with too few columns", "data show table.csv --model ./base"),
    case("HW1042", "a file in UTF-16", "data show wide.jsonl --model ./base"),
    case("HW1042", "a field that no example has", "train --model ./base --data chats.jsonl --seq 64 --map promt=x"),
    case("HW1042", "no preference pairs", "train --model ./base --data chats.jsonl --seq 64 --preference dpo"),
    case("HW1042", "a template that is cut short", "train --model ./torn-template --data chats.jsonl --seq 64"),
    case("HW1042", "conversations without a tokenizer", "train --model ./no-tokenizer --data chats.jsonl --seq 64"),
    case("HW1042", "a tokenizer with more tokens than the model", "train --model ./mixed --data chats.jsonl --seq 64"),
    case("HW1043", "positions that GGUF cannot hold", "export yarn --out yarn.gguf"),
    case("HW1043", "a NaN in the weights, in an export", "export nan --out nan.gguf"),
    with("HW1044", "a model that is not in the cache, where downloads are forbidden", "plan --model hf:org/name", Means::Offline),
];
