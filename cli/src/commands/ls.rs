use crate::{connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Ls
#[derive(Debug, clap::Args)]
pub(crate) struct LsOptions {}

pub(crate) fn run(_: &LsOptions, _: &ConnectOptions, _: &Talk) -> Result<ExitStatusCode, Failure> {
    Err(Failure::usage("not there yet"))
}
