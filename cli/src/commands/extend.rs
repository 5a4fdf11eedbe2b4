use crate::{connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Extend
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendOptions {}

pub(crate) fn run(_: &ExtendOptions, _: &ConnectOptions, _: &Talk) -> Result<ExitStatusCode, Failure> {
    Err(Failure::usage("not there yet"))
}
