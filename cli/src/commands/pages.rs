//! `redlock completions` and `redlock man`: the files that a package installs beside the program.

use std::{fs, io::stdout, path::PathBuf};

use clap_complete::Shell;

use crate::{exit_code::ExitStatusCode, failure::Failure, line, talk::Talk};

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  redlock completions bash > /etc/bash_completion.d/redlock")]
pub(crate) struct CompletionsOptions {
    /// The shell
    shell: Shell,
}

/// Write the manual pages into a folder
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  redlock man /usr/local/share/man/man1")]
pub(crate) struct ManOptions {
    /// The folder; it is made if it is not there
    folder: PathBuf,
}

pub(crate) fn completions(options: &CompletionsOptions) -> Result<ExitStatusCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut line::command(), "redlock", &mut script);
    std::io::Write::write_all(&mut stdout(), &script)?;
    Ok(ExitStatusCode::DONE)
}

pub(crate) fn man(options: &ManOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let folder = &options.folder;
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(line::command(), folder));
    written.map_err(|error| {
        Failure::new(ExitStatusCode::OUTPUT, format!("cannot write to {}: {error}", folder.display()))
    })?;
    talk.detail(&format!("wrote the manual pages into {}", folder.display()));
    Ok(ExitStatusCode::DONE)
}
