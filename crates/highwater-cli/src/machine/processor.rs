//! The processor: its name, its instructions, its threads.

use highwater::op::cpu::{self, Level};

/// The instructions that kernels make use of, among those that this machine has and `--cpu` allows.
pub(crate) fn instructions() -> Vec<&'static str> {
    let all = [
        ("avx2", Level::Avx2),
        ("fma", Level::Avx2),
        ("avx512f", Level::Avx512),
        ("avx512bf16", Level::Avx512Bf16),
    ];
    let used = all.into_iter().filter(|&(_, least)| cpu::level() >= least);
    used.map(|(name, _)| name).collect()
}

/// The processor's name, as far as the system tells.
pub(crate) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name| {
        let line = text.lines().find(|line: &&str| line.starts_with(name));
        line.and_then(|line| Some(line.split_once(':')?.1.trim()))
    };
    // Those of x86, and of ARM, where numbers stand for names.
    let names = [
        "model name",
        "cpu family",
        "model\t",
        "CPU implementer",
        "CPU variant",
        "CPU part",
    ];
    let known: Vec<_> = names.into_iter().filter_map(field).collect();
    format!("{} {}", std::env::consts::ARCH, known.join(" "))
}

/// As many threads as the machine runs at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
