//! Converts ended calls for JavaScript: a started call becomes its number or its result, and drained results become their
//! numbers, values and failures.

use napi::{Env, Error, JsError, Result, Unknown, bindgen_prelude::ToNapiValue, sys};
use redlock::ffi::{Call, Calls, Outcome, completions::Started};

use crate::values::{Failure, OrThrow, result};

/// Drains the results: for each call its number, its value and its failure.
pub(crate) fn drained<'e>(env: &'e Env, calls: &Calls) -> Result<Vec<[Unknown<'e>; 3]>> {
    let results = calls.drain().or_throw(env)?.into_iter().map(|(id, outcome)| {
        // If a result cannot be converted, only its own call fails.
        let [value, failure] = value_and_failure(env, outcome).or_else(|error| conversion_failed(env, error))?;
        Ok([number(id).into_unknown(env)?, value, failure])
    });
    results.collect()
}

/// The value and the failure of a call; one of them is undefined.
fn value_and_failure(env: &Env, outcome: Outcome) -> Result<[Unknown<'_>; 2]> {
    Ok(match outcome {
        Ok(value) => [result(env, value)?, ().into_unknown(env)?],
        Err(error) => [().into_unknown(env)?, Failure::from(&error).into_unknown(env)?],
    })
}

/// For a result that could not be converted: no value, and the engine's error as the failure.
fn conversion_failed(env: &Env, error: Error) -> Result<[Unknown<'_>; 2]> {
    Ok([().into_unknown(env)?, JsError::from(error).into_unknown(*env)])
}

/// A started call, which JavaScript gets as its number or its result.
pub struct StartedCall(pub(crate) Call);

impl ToNapiValue for StartedCall {
    unsafe fn to_napi_value(env: sys::napi_env, Self(call): Self) -> Result<sys::napi_value> {
        // SAFETY: the caller's promise.
        unsafe {
            match call {
                Started::Pending(id) => f64::to_napi_value(env, number(id)),
                Started::Done(outcome) => {
                    Vec::to_napi_value(env, value_and_failure(&Env::from_raw(env), outcome)?.to_vec())
                }
            }
        }
    }
}

/// The number of a call for JavaScript. It is exact up to 2^53, which no process reaches.
fn number(id: u64) -> f64 {
    id as f64
}
