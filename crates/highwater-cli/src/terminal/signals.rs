//! Stopping on SIGINT, SIGTERM and SIGHUP: at the next step's end, or at once when asked twice. SIGUSR1 asks for a saved state
//! there, and the run goes on.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use highwater_memory::DiskFiles;
use highwater_memory::files::remove_drafts;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use super::output;

/// Has two signals not be the end of the process: a file that grows beyond the process's limit (`ulimit -f`) is an
/// error of the write, as a full disk is, and who asks for a saved state before there is a run is not heard.
pub fn survive() {
    for signal in [SIGXFSZ, SIGUSR1] {
        // Where the system refuses a handler the process ends there, as without one.
        let _ = flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
}

/// Has a signal that ends the process remove first what it has written so far under names of its own.
///
/// # Errors
/// When the system refuses a handler, or a thread.
#[expect(clippy::exit, reason = "a signal ends the process")]
pub fn end_tidily() -> io::Result<()> {
    let (mut heard, tell) = UnixStream::pair()?;
    let received = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        // In this order: who hears of a signal finds which it was.
        flag::register_usize(signal, received.clone(), signal as usize)?;
        pipe::register(signal, tell.try_clone()?)?;
    }
    let end = move || {
        // Where the pipe breaks, the process ends as it would have.
        if heard.read_exact(&mut [0]).is_ok() {
            ENDING.store(true, Ordering::SeqCst);
            let left = remove_drafts(&DiskFiles);
            if let Err(error) = left {
                output::news(&format!(
                    "warning: a temporary file could not be removed: {error}"
                ));
            }
            std::process::exit(exit_code(received.load(Ordering::Relaxed) as i32));
        }
    };
    std::thread::Builder::new()
        .name("highwater-ends".into())
        .spawn(end)?;
    Ok(())
}

/// Whether a signal ends the process: what its other threads find gone is no failure of theirs.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Waits for the end, if a signal ends the process.
pub fn stand_by() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Whether a signal has asked the program to stop or to save. Handlers only set flags.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    received: Arc<AtomicUsize>,
    save: Arc<AtomicBool>,
}

impl Signals {
    /// Listens from now on. The second SIGINT or SIGTERM ends the program at once, with its exit code; what is on
    /// disk by then is as good as after a power cut.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        let signals = Self::default();
        let asked = Arc::new(AtomicBool::new(false));
        let note = |signal| {
            flag::register(signal, asked.clone())?;
            flag::register_usize(signal, signals.received.clone(), signal as usize)
        };
        for signal in [SIGINT, SIGTERM] {
            // In this order: at the first signal the condition is not true yet.
            flag::register_conditional_shutdown(signal, exit_code(signal), asked.clone())?;
            note(signal)?;
        }
        // A terminal that closes may send it twice, by the system and by its shell: that is no impatience.
        if !is_ignored(SIGHUP) {
            note(SIGHUP)?;
        }
        flag::register(SIGUSR1, signals.save.clone())?;
        Ok(signals)
    }

    /// Whether a saved state was asked for since this was asked last.
    pub fn take_save(&self) -> bool {
        self.save.swap(false, Ordering::Relaxed)
    }

    /// The exit code for the signal that came, if one came.
    pub fn stop_code(&self) -> Option<u8> {
        match self.received.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(exit_code(signal as i32) as u8),
        }
    }
}

/// Whether the process began with a signal ignored, as under `nohup`, or the system does not tell.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

/// 128 and the signal's number, as shells have it.
fn exit_code(signal: i32) -> i32 {
    128 + signal
}

/// Has this process, which another one of this program began, end when that one is gone: nobody waits for it then.
pub fn end_with_parent() {
    // Where the system cannot do that, it ends when it is done.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_signal_is_noted() {
        let signals = Signals::listen().unwrap();
        assert_eq!(signals.stop_code(), None);
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        assert!(signals.take_save());
        assert!(!signals.take_save());
        assert_eq!(signals.stop_code(), None);
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert_eq!(signals.stop_code(), Some(143));
    }
}
