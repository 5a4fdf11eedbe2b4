//! What `redlock` prints: data on stdout, talk on stderr.

use std::{
    env,
    io::{self, IsTerminal, Write, stderr, stdout},
};

use serde_json::Value;

use crate::{exit_code::ExitStatusCode, failure::Failure};

/// The options for what is printed.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct TalkOptions {
    /// Print one JSON object a line; times are in seconds, tokens are strings
    #[arg(long, global = true)]
    json: bool,
    /// When to use colours; `NO_COLOR` turns `auto` off
    #[arg(long, value_name = "WHEN", global = true, value_enum, default_value_t = Color::Auto)]
    color: Color,
    /// Say more on stderr
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    quiet: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl TalkOptions {
    /// The way to print that these options choose.
    pub(crate) fn talk(self) -> Talk {
        let wanted = |terminal: bool| match self.color {
            Color::Auto => terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            Color::Always => true,
            Color::Never => false,
        };
        Talk {
            json: self.json,
            color: wanted(stdout().is_terminal()),
            error_color: wanted(stderr().is_terminal()),
            level: match (self.quiet, self.verbose) {
                (true, _) => Level::Quiet,
                (_, true) => Level::Verbose,
                _ => Level::Normal,
            },
        }
    }
}

/// How much is printed on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Quiet,
    Normal,
    Verbose,
}

/// The way to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    json: bool,
    color: bool,
    error_color: bool,
    level: Level,
}

impl Talk {
    /// Whether data is printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether data is printed in colours.
    pub(crate) fn colors(&self) -> bool {
        self.color
    }

    /// Whether only errors are printed on stderr.
    pub(crate) fn quiet(&self) -> bool {
        self.level == Level::Quiet
    }

    /// Whether details are printed.
    pub(crate) fn verbose(&self) -> bool {
        self.level == Level::Verbose
    }

    /// Prints a detail on stderr, with `--verbose`.
    pub(crate) fn detail(&self, text: &str) {
        if self.level == Level::Verbose {
            self.print("", text);
        }
    }

    /// Prints a remark on stderr, without `--quiet`.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet() {
            self.print("", text);
        }
    }

    /// Prints a warning on stderr, without `--quiet`.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet() {
            self.print("\x1b[33m", text);
        }
    }

    /// Prints an error on stderr.
    pub(crate) fn error(&self, text: &str) {
        self.print("\x1b[31m", text);
    }

    /// Prints what must be on record on stderr, also with `--quiet`.
    pub(crate) fn audit(&self, text: &str) {
        self.print("", text);
    }

    fn print(&self, color: &str, text: &str) {
        let (start, end) = if self.error_color && !color.is_empty() { (color, "\x1b[0m") } else { ("", "") };
        // A stderr that is gone is no reason to fail.
        let _ = writeln!(stderr(), "{start}redlock:{end} {text}");
    }

    /// A text for stdout that stands out.
    pub(crate) fn bold(&self, text: &str) -> String {
        if self.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A text for stdout that is red, or yellow.
    pub(crate) fn marked(&self, text: &str, is_red: bool) -> String {
        let start = if is_red { "\x1b[31m" } else { "\x1b[33m" };
        if self.color { format!("{start}{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prints a line of data.
    #[allow(clippy::unused_self, reason = "all that is printed goes through one value")]
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = stdout().lock();
        Ok(writeln!(stdout, "{text}").and_then(|()| stdout.flush())?)
    }

    /// Prints an object of data.
    pub(crate) fn object(&self, object: &Value) -> Result<(), Failure> {
        self.line(&object.to_string())
    }
}

impl From<io::Error> for Failure {
    /// The failure to write data.
    fn from(error: io::Error) -> Self {
        Self::new(ExitStatusCode::OUTPUT, format!("cannot write to stdout: {error}"))
    }
}
