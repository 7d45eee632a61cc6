//! Requests to the hub, made by the program `curl`: it brings certificates, proxies, redirects and resumed downloads.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Code, Failure};
use crate::terminal::output;

/// Arguments of each request. A token is sent to the host that was asked, not to those that it redirects to.
const ARGUMENTS: [&str; 18] = [
    // First, or settings of the user's own file would apply: headers among the body, or another place for it.
    "--disable",
    "--fail",
    "--location",
    "--show-error",
    "--proto",
    "=http,https",
    "--connect-timeout",
    "20",
    // No byte for a minute.
    "--speed-limit",
    "1",
    "--speed-time",
    "60",
    "--user-agent",
    "highwater",
    "--write-out",
    "\n%{http_code}",
    // URL and token come by standard input: other users of the machine see arguments.
    "--config",
    "-",
];

/// The exit code of `curl` where an answer has an error's status.
const BY_STATUS: i32 = 22;
/// The exit codes of `curl` where a server cannot answer from a byte on.
const NO_RANGE: [i32; 2] = [33, 36];

/// What came of a request.
pub(super) struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// What was not written to a file.
    pub body: Vec<u8>,
    /// A server that only answers from the beginning on was asked for the rest.
    pub has_no_range: bool,
}

/// Asks for URLs.
pub(super) struct Curl {
    pub token: Option<String>,
}

impl Curl {
    /// Asks for a URL. With `to`, the answer continues that file. `is_long`: on a terminal, `curl` shows how far it is.
    ///
    /// # Errors
    /// [`Failure`] where no whole answer came. An error's status is an answer.
    pub(super) fn get(
        &self,
        url: &str,
        to: Option<&Path>,
        is_long: bool,
    ) -> Result<Answer, Failure> {
        let failed = |problem: &str| {
            Failure::new(Code::Files, format!("{url}: {problem}"))
                .id("HW1044")
                .hint("run the same command again: it continues the download")
        };
        let mut command = Command::new("curl");
        command.args(ARGUMENTS);
        if let Some(file) = to {
            command.args(["--continue-at", "-", "--output"]).arg(file);
        }
        let is_seen = is_long && output::is_terminal();
        if is_seen {
            command.arg("--progress-bar").stderr(Stdio::inherit());
        } else {
            command.arg("--silent").stderr(Stdio::piped());
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed("downloads need the program curl")
                .hint("install curl, or download the model by other means and give its folder"),
            _ => failed(&format!("curl: {error}")),
        })?;
        if let Some(mut input) = child.stdin.take() {
            // Where it has ended before, its exit code says why.
            let _ = input.write_all(self.config(url).as_bytes());
        }
        let ended = child.wait_with_output();
        let ended = ended.map_err(|error| failed(&format!("curl: {error}")))?;
        let (code, mut body) = (ended.status.code(), ended.stdout);
        let line = body.iter().rposition(|&byte| byte == b'\n');
        let status = body.split_off(line.unwrap_or(body.len()));
        let status = String::from_utf8_lossy(&status).trim().parse().unwrap_or(0);
        let has_no_range = code.is_some_and(|code| NO_RANGE.contains(&code));
        if matches!(code, Some(0 | BY_STATUS)) || has_no_range {
            return Ok(Answer {
                status,
                body,
                has_no_range,
            });
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        Err(failed(match said.lines().next_back() {
            Some(said) => said,
            None => "the download was interrupted",
        }))
    }

    /// A request as lines of a configuration of `curl`.
    fn config(&self, url: &str) -> String {
        let quoted = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"");
        let url = format!("url = \"{}\"\n", quoted(url));
        match &self.token {
            Some(token) => format!(
                "{url}header = \"Authorization: Bearer {}\"\n",
                quoted(token)
            ),
            None => url,
        }
    }
}
