//! The command line: the options of all commands, and the command.

use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    commands,
    commands::{
        acquire::AcquireOptions,
        bench::BenchOptions,
        doctor::DoctorOptions,
        explain::ExplainOptions,
        extend::ExtendOptions,
        inspect::InspectOptions,
        ls::LsOptions,
        pages::{CompletionsOptions, ManOptions},
        release::ReleaseOptions,
    },
    connect::ConnectOptions,
    exec::{self, ExecOptions},
    exit_code::ExitStatusCode,
    failure::Failure,
    live::{
        top::{self, TopOptions},
        watch::{self, WatchOptions},
        web::{self, WebOptions},
    },
    talk::TalkOptions,
};

/// Distributed locks on Redis, for shells and operators
#[derive(Debug, Parser)]
#[command(
    name = "redlock",
    version,
    about,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done; 75 held by somebody else; 79 lost; 69 too few nodes answered; 77 refused by a \
                  node; 65 the key is no lock; 64 usage; 70 internal error."
)]
pub(crate) struct Line {
    #[command(flatten)]
    servers: ConnectOptions,
    #[command(flatten)]
    talk: TalkOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Exec(ExecOptions),
    Acquire(AcquireOptions),
    Extend(ExtendOptions),
    Release(ReleaseOptions),
    Ls(LsOptions),
    Inspect(InspectOptions),
    Doctor(DoctorOptions),
    Top(TopOptions),
    Watch(WatchOptions),
    Web(WebOptions),
    Bench(BenchOptions),
    Explain(ExplainOptions),
    Completions(CompletionsOptions),
    Man(ManOptions),
}

impl Line {
    /// Reads the arguments of this process. For a wrong line, and for `--help`, prints the text and returns the code.
    pub(crate) fn read() -> Result<Self, ExitStatusCode> {
        let parsed = command().try_get_matches().and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|error| {
            // Nobody reads a text that cannot be printed.
            let _ = error.print();
            if error.use_stderr() { ExitStatusCode::USAGE } else { ExitStatusCode::DONE }
        })
    }

    /// Runs the command, and reports its failure. A panic is an internal error.
    pub(crate) fn run(self) -> ExitStatusCode {
        let talk = self.talk.talk();
        let ran = catch_unwind(AssertUnwindSafe(|| match self.command {
            Command::Exec(options) => Ok(exec::run(options, &self.servers, &talk)),
            Command::Acquire(options) => commands::acquire::run(&options, &self.servers, &talk),
            Command::Extend(options) => commands::extend::run(&options, &self.servers, &talk),
            Command::Release(options) => commands::release::run(&options, &self.servers, &talk),
            Command::Ls(options) => commands::ls::run(&options, &self.servers, &talk),
            Command::Inspect(options) => commands::inspect::run(&options, &self.servers, &talk),
            Command::Doctor(options) => commands::doctor::run(&options, &self.servers, &talk),
            Command::Top(options) => top::run(&options, &self.servers, &talk),
            Command::Watch(options) => watch::run(&options, &self.servers, &talk),
            Command::Web(options) => web::run(&options, &self.servers, &talk),
            Command::Bench(options) => commands::bench::run(&options, &self.servers, &talk),
            Command::Explain(options) => commands::explain::run(&options, &talk),
            Command::Completions(options) => commands::pages::completions(&options),
            Command::Man(options) => commands::pages::man(&options, &talk),
        }));
        let failed = |failure: Failure| failure.report(&talk);
        ran.map_or(ExitStatusCode::INTERNAL, |ran| ran.unwrap_or_else(failed))
    }
}

/// The command with its options, for completions and manuals.
pub(crate) fn command() -> clap::Command {
    Line::command()
}
