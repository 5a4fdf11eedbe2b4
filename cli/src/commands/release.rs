use crate::{connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Release
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseOptions {}

pub(crate) fn run(_: &ReleaseOptions, _: &ConnectOptions, _: &Talk) -> Result<ExitStatusCode, Failure> {
    Err(Failure::usage("not there yet"))
}
