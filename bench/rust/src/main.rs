//! A contender: acquires and releases locks with one Rust library, as the harness requests: `contender LIBRARY`.
//! `bench/README.md` describes its input and output. `contender scripts` prints the scripts that the bare clients send.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]

mod libraries;
mod works;

use std::{
    env,
    io::{BufRead, Write, stdin, stdout},
};

use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::{
    libraries::{
        Bare, BareBlocking, FAIR, Library, PLAIN, Redlock, RedlockBlocking, Rslock, TOKEN_WIRE, Unsupported, sources,
    },
    works::Form,
};

fn say(answer: &Value) {
    let mut out = stdout().lock();
    writeln!(out, "{answer}").unwrap();
    out.flush().unwrap();
}

fn answer<L: Library>(runtime: &Runtime, library: &L, request: &Value) -> Result<Value, Unsupported> {
    match request["work"].as_str().unwrap() {
        "pair" => Ok(runtime.block_on(works::pair(library, request, Form::Kept))),
        "block" => Ok(runtime.block_on(works::pair(library, request, Form::Block))),
        "nested" => runtime.block_on(works::nested(library, request)),
        "parallel" => runtime.block_on(works::parallel(library, request)),
        "independent" => runtime.block_on(works::independent(library, request, Form::Kept)),
        "blocks" => runtime.block_on(works::independent(library, request, Form::Block)),
        "shared" => runtime.block_on(works::shared(library, request)),
        "names" => Ok(runtime.block_on(works::names(library, request))),
        "contend" => Ok(runtime.block_on(works::contend(library, request))),
        "herd" => runtime.block_on(works::herd(library, request)),
        "hold" => runtime.block_on(works::hold(library, request)),
        other => panic!("unknown work {other}"),
    }
}

fn serve<L: Library>(name: &str, version: &str, urls: &[String]) {
    // Runs on one thread of the user's own. If calls block that thread, the runtime needs another one for its timers.
    let mut builder = if L::BLOCKING { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let library = match runtime.block_on(L::connect(urls)) {
        Ok(library) => library,
        Err(Unsupported(why)) => return say(&json!({ "unsupported": why })),
    };
    let compiler = format!("rust, {}", if cfg!(debug_assertions) { "development profile" } else { "release" });
    say(&json!({ "ready": true, "library": name, "version": version, "runtime": compiler }));
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        say(&match answer(&runtime, &library, &request) {
            Ok(answer) => answer,
            Err(Unsupported(why)) => json!({ "unsupported": why }),
        });
    }
    runtime.block_on(library.close());
}

fn main() {
    let name = env::args().nth(1).expect("the name of a library");
    if name == "scripts" {
        return say(&sources());
    }
    let urls: Vec<String> = env::var("REDIS_URLS").unwrap().split(',').map(str::to_owned).collect();
    let ours = env!("CARGO_PKG_VERSION");
    match name.as_str() {
        "redlock" => serve::<Redlock<PLAIN>>(&name, ours, &urls),
        "redlock-token" => serve::<Redlock<TOKEN_WIRE>>(&name, ours, &urls),
        "redlock-fair" => serve::<Redlock<FAIR>>(&name, ours, &urls),
        "redlock-blocking" => serve::<RedlockBlocking>(&name, ours, &urls),
        "rslock" => serve::<Rslock>(&name, "0.10.0", &urls),
        "bare" => serve::<Bare>(&name, "redis 1", &urls),
        "bare-blocking" => serve::<BareBlocking>(&name, "redis 1", &urls),
        _ => panic!("unknown library {name}"),
    }
}
