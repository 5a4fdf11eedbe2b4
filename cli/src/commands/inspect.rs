use crate::{connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Inspect
#[derive(Debug, clap::Args)]
pub(crate) struct InspectOptions {}

pub(crate) fn run(_: &InspectOptions, _: &ConnectOptions, _: &Talk) -> Result<ExitStatusCode, Failure> {
    Err(Failure::usage("not there yet"))
}
