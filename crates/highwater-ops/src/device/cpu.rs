//! Which instructions of the processor kernels use.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// The most that kernels of this build may use: for tests, by `RUSTFLAGS='--cfg highwater_cpu="avx2"'`.
const MOST: Level = if cfg!(highwater_cpu = "portable") {
    Level::Portable
} else if cfg!(highwater_cpu = "avx2") {
    Level::Avx2
} else if cfg!(highwater_cpu = "avx512") {
    Level::Avx512
} else {
    Level::Avx512Bf16
};

/// An instruction set that kernels are compiled for, the lesser first. Results depend on it, and on
/// nothing else of a processor (PyTorch's `torch.backends.cpu.get_cpu_capability()`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the target has: SSE2, or NEON.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// The AVX-512 of servers since 2017.
    Avx512,
    /// With products of pairs of `bf16`, summed in `f32`.
    Avx512Bf16,
}

impl Level {
    /// All, the lesser first.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Bf16];

    /// The name, which is parsed too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
        }
    }

    /// The best that this processor has and this build may use.
    fn of_processor() -> Self {
        Self::found().min(MOST)
    }

    fn found() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            match (avx2, avx512) {
                (true, true) if is_x86_feature_detected!("avx512bf16") => Self::Avx512Bf16,
                (true, true) => Self::Avx512,
                (true, false) => Self::Avx2,
                _ => Self::Portable,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::Portable
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no [`Level`] has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no instruction set: choose `portable`, `avx2`, `avx512` or `avx512bf16`")]
pub struct UnknownLevel(pub String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(name: &str) -> Result<Self, UnknownLevel> {
        let found = Self::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| UnknownLevel(name.to_owned()))
    }
}

/// Kernels have run, or [`limit`] was called with something else: results would be of two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("kernels use `{0}` already: say what they may use before the first of them runs")]
pub struct LevelIsFixed(pub Level);

static LEVEL: OnceLock<Level> = OnceLock::new();

/// What kernels use: the best that the processor has, but no more than [`limit`] allows. Stays what it was
/// when it was first asked for.
#[inline]
#[must_use]
pub fn level() -> Level {
    *LEVEL.get_or_init(Level::of_processor)
}

/// Lets kernels use no more than `most`, whatever the processor has.
///
/// # Errors
/// [`LevelIsFixed`] where they use something else already.
pub fn limit(most: Level) -> Result<(), LevelIsFixed> {
    let wanted = Level::of_processor().min(most);
    match *LEVEL.get_or_init(|| wanted) {
        level if level == wanted => Ok(()),
        level => Err(LevelIsFixed(level)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_and_an_order() {
        for pair in Level::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!("sse".parse::<Level>(), Err(UnknownLevel("sse".to_owned())));
    }

    #[test]
    fn what_is_used_stays() {
        let used = level();
        assert!(used <= Level::of_processor());
        assert_eq!(limit(used), Ok(()));
        if used > Level::Portable {
            assert_eq!(limit(Level::Portable), Err(LevelIsFixed(used)));
        }
    }
}
