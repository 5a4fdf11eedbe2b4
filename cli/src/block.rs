//! Blocks until a call of the library is done. The program has no async code of its own.

use redlock::{
    LockError,
    process::{driver::Driver, runtime},
};

use crate::{exit_code::ExitStatusCode, failure::Failure};

/// Blocks until a future of the library is done.
pub(crate) fn block<T>(call: impl Future<Output = Result<T, LockError>>) -> Result<T, Failure> {
    let mut never = || Ok::<(), LockError>(());
    match runtime::block(Driver::Background, call, &mut never) {
        Ok(result) => Ok(result?),
        Err(interrupted) => Err(Failure::new(ExitStatusCode::INTERNAL, format!("interrupted: {interrupted:?}"))),
    }
}
