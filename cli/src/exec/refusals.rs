//! What keeps `exec` from starting its command, as failures of `redlock`.

use super::{command::Unusable, options::Refused};
use crate::{exit_code::ExitStatusCode, failure::Failure};

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::usage(format!("{}: {}", refused.option, refused.detail))
    }
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::NotFound(name) => {
                let message = format!("{}: not found. Give its path, or add its folder to PATH.", name.display());
                Self::new(ExitStatusCode::NOT_FOUND, message)
            }
            Unusable::NotExecutable(path) => {
                let message = format!("{}: cannot be executed. See ls -l, and its first line.", path.display());
                Self::new(ExitStatusCode::NOT_EXECUTABLE, message)
            }
        }
    }
}
