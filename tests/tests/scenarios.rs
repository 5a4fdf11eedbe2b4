//! Runs the scenarios of `tests/scenarios` in Rust, on real servers and on in-memory nodes. It owns the order of the
//! steps, the judgement and the report; the words are `redlock_tests::scenario`'s. Each scenario and kind of node is a
//! result of its own. Arguments that are no options pick scenarios by a part of their line in the report.

use std::{
    collections::HashMap,
    env, fs,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use redlock::LockError;
use redlock_tests::{
    nodes::Backend,
    scenario::{World, locked},
};
use serde_json::Value;
use tokio::{
    task::{JoinError, JoinHandle},
    time::timeout,
};

/// Scenarios mostly wait, so that several run on one core.
const AT_ONCE: usize = 4;
/// No step takes longer unless something hangs.
const PATIENCE: Duration = Duration::from_secs(15);

type End = Result<Value, LockError>;
type Work = JoinHandle<(End, Duration)>;

/// What is wrong with the end of a step.
fn judge(world: &World, step: &Value, end: &End, took: Duration) -> Result<(), String> {
    let claim = |right: bool, what: &str| if right { Ok(()) } else { Err(format!("{what}, not {end:?}")) };
    let token = |lease: &Value| world.lease(lease).token();
    match (end, step["error"].as_str()) {
        (Ok(_), Some(code)) => claim(false, &format!("fails with {code}"))?,
        (Err(_), None) => claim(false, "succeeds")?,
        (Err(error), Some(code)) => {
            let message = error.to_string();
            let plain = |text: &str| text.replace('_', "").to_lowercase();
            claim(error.code() == code, &format!("fails with {code}"))?;
            let reason = if let LockError::Lost { reason, .. } = error { reason.as_str() } else { "" };
            claim(step["reason"].as_str().is_none_or(|wanted| wanted == reason), "another reason")?;
            let argument = step["argument"].as_str().unwrap_or_default();
            claim(plain(&message).contains(&plain(argument)), "the message names the argument")?;
            claim(message.contains(step["says"].as_str().unwrap_or_default()), "the message says it")?;
            claim(step["hides"].as_str().is_none_or(|secret| !message.contains(secret)), "the message hides it")?;
            let nodes = locked(&world.nodes);
            let named = |node: &Value| message.contains(&nodes[node.as_u64().unwrap_or_default() as usize].address());
            claim(step["causes"].as_array().is_none_or(|all| all.iter().all(named)), "the message names the nodes")?;
        }
        (Ok(value), None) => {
            let same = |wanted: &Value| match wanted.as_object() {
                Some(fields) => fields.iter().all(|(field, wanted)| value[field] == *wanted),
                None => value == wanted,
            };
            claim(step.get("equals").is_none_or(same), &format!("equals {}", step["equals"]))?;
            let owned = |lease: &Value| value["owner"] == world.lease(lease).owner();
            claim(step.get("owned_by").is_none_or(owned), "has the same owner")?;
            let above = match &step["greater_than"] {
                Value::Null => Vec::new(),
                Value::Array(all) => all.clone(),
                one => vec![one.clone()],
            };
            let mine = value["token"].as_u64().unwrap_or_default();
            claim(above.iter().all(|lease| mine > token(lease)), "a greater token")?;
            claim(step.get("same_as").is_none_or(|lease| mine == token(lease)), "the same token")?;
            let number = value.as_f64().unwrap_or(f64::NAN);
            claim(step["min"].as_f64().is_none_or(|min| number >= min), &format!("at least {}", step["min"]))?;
            claim(step["max"].as_f64().is_none_or(|max| number <= max), &format!("at most {}", step["max"]))?;
        }
    }
    limits(step, took)
}

/// Whether a step took as long as it may.
fn limits(step: &Value, took: Duration) -> Result<(), String> {
    let claim = |right: bool, what: String| if right { Ok(()) } else { Err(what) };
    let (limit, least) = (step["within_ms"].as_u64(), step["at_least_ms"].as_u64());
    let took = took.as_millis() as u64;
    claim(limit.is_none_or(|limit| took <= limit), format!("took {took} ms, may take {}", step["within_ms"]))?;
    claim(least.is_none_or(|least| took >= least), format!("took {took} ms, must take {}", step["at_least_ms"]))
}

/// Starts a step on a task of its own, so that one that panics or is cancelled harms no other.
fn start(world: &Arc<World>, step: &Value) -> Work {
    let (world, step, started) = (world.clone(), step.clone(), Instant::now());
    tokio::spawn(async move {
        let end = timeout(PATIENCE, world.perform(&step)).await;
        (end.unwrap_or_else(|_| panic!("still not done after {PATIENCE:?}")), started.elapsed())
    })
}

async fn run(world: Arc<World>) -> Result<(), String> {
    let mut spawned: HashMap<String, (Value, Work)> = HashMap::new();
    for (index, step) in world.scenario["steps"].as_array().expect("steps").iter().enumerate() {
        let at = |why: String| format!("step {index} {step}: {why}");
        if let Some(id) = step["spawn"].as_str() {
            spawned.insert(id.to_owned(), (step.clone(), start(&world, step)));
            continue;
        }
        let started = Instant::now();
        let (judged, end) = match (step["do"].as_str(), step["id"].as_str()) {
            (Some("join"), Some(id)) => {
                let (judged, work) = spawned.remove(id).ok_or_else(|| at("nothing to join".to_owned()))?;
                (judged, work.await)
            }
            (Some("cancel"), Some(id)) => {
                let (_, work) = spawned.remove(id).ok_or_else(|| at("nothing to cancel".to_owned()))?;
                work.abort();
                match work.await {
                    Err(error) if error.is_cancelled() => (Value::Null, Ok((Ok(Value::Null), started.elapsed()))),
                    end => return Err(at(format!("it was over before: {end:?}"))),
                }
            }
            _ => (step.clone(), start(&world, step).await),
        };
        let (end, took) = end.map_err(|error| at(said(error)))?;
        judge(&world, &judged, &end, took).map_err(at)?;
        limits(step, started.elapsed()).map_err(at)?;
    }
    if spawned.is_empty() { Ok(()) } else { Err(format!("left running: {:?}", spawned.keys())) }
}

/// What a task said when it panicked.
fn said(error: JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// Every scenario with every kind of node it can run on.
fn cases() -> Vec<(String, Value, Backend)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = fs::read_dir(directory).expect("the scenarios").flatten().map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable file");
        let list: Vec<Value> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let theme = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for scenario in list {
            for backend in [Backend::Redis, Backend::Memory] {
                let real = scenario["needs"].as_array().is_some_and(|needs| needs.iter().any(|need| need == "redis"));
                if backend == Backend::Redis || !real {
                    let name = scenario["name"].as_str().expect("a name");
                    cases.push((format!("{} {theme}: {name}", backend.name()), scenario.clone(), backend));
                }
            }
        }
    }
    cases
}

fn main() -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut cases = cases();
    cases.retain(|(name, ..)| wanted.is_empty() || wanted.iter().any(|part| name.contains(part)));
    cases.reverse();
    let (count, started) = (cases.len(), Instant::now());
    let (queue, failed) = (Mutex::new(cases), Mutex::new(Vec::new()));
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        loop {
            let Some((name, scenario, backend)) = locked(&queue).pop() else { return };
            let started = Instant::now();
            let end = runtime.block_on(run(Arc::new(World::new(scenario, backend))));
            let took = started.elapsed().as_secs_f64();
            match end {
                Ok(()) => println!("ok     {took:5.2} s  {name}"),
                Err(why) => {
                    println!("FAILED {took:5.2} s  {name}\n       {why}");
                    locked(&failed).push(name);
                }
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_default();
    println!("{} of {count} scenarios passed in {:.1} s", count - failed.len(), started.elapsed().as_secs_f64());
    for name in &failed {
        println!("FAILED {name}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
