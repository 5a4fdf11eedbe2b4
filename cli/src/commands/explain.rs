use crate::{connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Explain
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainOptions {}

pub(crate) fn run(_: &ExplainOptions, _: &ConnectOptions, _: &Talk) -> Result<ExitStatusCode, Failure> {
    Err(Failure::usage("not there yet"))
}
