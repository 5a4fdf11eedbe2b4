//! Runs the scenarios of `tests/scenarios`: in Rust, on real servers and on in-memory nodes; or, with
//! `--host "<command>"`, in the language of that host, on real servers. This file orders and judges the steps and
//! reports the results; `redlock_tests::scenario` executes them. Each scenario with each kind of node is a result of
//! its own. Arguments that are not options select scenarios by a part of their line in the report.

use std::{
    collections::HashMap,
    env, fs,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use redlock_tests::{
    driver::{Driver, End, Failure, Host},
    locked,
    nodes::Backend,
    scenario::World,
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinHandle},
    time::timeout,
};

/// Scenarios mostly wait, so several run on one core.
const AT_ONCE: usize = 6;
/// A step that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(15);

/// A step under way.
struct Work {
    task: JoinHandle<(End, Duration)>,
    given_up: Arc<Notify>,
}

/// Returns an error that says how the outcome of a step differs from the expected one.
fn judge(world: &World, step: &Value, end: &End, took: Duration) -> Result<(), String> {
    let claim = |right: bool, what: &str| if right { Ok(()) } else { Err(format!("{what}, not {end:?}")) };
    let token = |lease: &Value| world.lease(lease).token;
    match (end, step["error"].as_str()) {
        (Ok(_), Some(code)) => claim(false, &format!("fails with {code}"))?,
        (Err(_), None) => claim(false, "succeeds")?,
        (Err(error), Some(code)) => {
            let message = &error.message;
            let plain = |text: &str| text.replace('_', "").to_lowercase();
            claim(error.code == code, &format!("fails with {code}"))?;
            claim(step["reason"].as_str().is_none_or(|wanted| wanted == error.reason), "another reason")?;
            let argument = step["argument"].as_str().unwrap_or_default();
            claim(plain(message).contains(&plain(argument)), "the message names the argument")?;
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
            let owned = |lease: &Value| value["owner"] == world.lease(lease).owner;
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

/// Checks how long a step took.
fn limits(step: &Value, took: Duration) -> Result<(), String> {
    let claim = |right: bool, what: String| if right { Ok(()) } else { Err(what) };
    let (limit, least) = (step["within_ms"].as_u64(), step["at_least_ms"].as_u64());
    let took = took.as_millis() as u64;
    claim(limit.is_none_or(|limit| took <= limit), format!("took {took} ms, may take {}", step["within_ms"]))?;
    claim(least.is_none_or(|least| took >= least), format!("took {took} ms, must take {}", step["at_least_ms"]))
}

/// Starts a step on a task of its own, so that a panic ends no other step.
fn start(world: &Arc<World>, step: &Value) -> Work {
    let (world, step, started) = (world.clone(), step.clone(), Instant::now());
    let given_up = Arc::new(Notify::new());
    let notified = given_up.clone();
    let task = tokio::spawn(async move {
        let end = timeout(PATIENCE, world.perform(&step, &notified)).await;
        (end.unwrap_or_else(|_| Err(Failure::new("hung", "still not done"))), started.elapsed())
    });
    Work { task, given_up }
}

async fn run(world: &Arc<World>) -> Result<(), String> {
    let mut spawned: HashMap<String, (Value, Work)> = HashMap::new();
    for (index, step) in world.scenario["steps"].as_array().expect("steps").iter().enumerate() {
        let at = |why: String| format!("step {index} {step}: {why}");
        if let Some(id) = step["spawn"].as_str() {
            spawned.insert(id.to_owned(), (step.clone(), start(world, step)));
            continue;
        }
        let started = Instant::now();
        let (judged, work) = match (step["do"].as_str(), step["id"].as_str()) {
            (Some("join"), Some(id)) => spawned.remove(id).ok_or_else(|| at("nothing to join".to_owned()))?,
            (Some("cancel"), Some(id)) => {
                let (_, work) = spawned.remove(id).ok_or_else(|| at("nothing to cancel".to_owned()))?;
                work.given_up.notify_one();
                (json!({ "error": "cancelled" }), work)
            }
            _ => (step.clone(), start(world, step)),
        };
        let (end, took) = work.task.await.map_err(|error| at(said(error)))?;
        judge(world, &judged, &end, took).map_err(at)?;
        limits(step, started.elapsed()).map_err(at)?;
    }
    if spawned.is_empty() { Ok(()) } else { Err(format!("left running: {:?}", spawned.keys())) }
}

/// Runs a scenario, and closes what it created, even if it failed.
async fn run_and_end(world: World) -> Result<(), String> {
    let world = Arc::new(world);
    let end = run(&world).await;
    let closed = timeout(PATIENCE, world.end()).await;
    end?;
    closed
        .map_err(|_| "closing its clients hangs".to_owned())?
        .map_err(|error| format!("closing its clients: {error:?}"))
}

/// The message of a task's panic.
fn said(error: JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// Every scenario by theme and name.
fn scenarios() -> Vec<(String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = fs::read_dir(directory).expect("the scenarios").flatten().map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable file");
        let list: Vec<Value> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let theme = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let named = |one: Value| (format!("{theme}: {}", one["name"].as_str().expect("a name")), one);
        all.extend(list.into_iter().map(named));
    }
    all
}

/// Every scenario with each kind of node that it can run on, and the scenarios that cannot run at all.
fn cases(host: Option<&Host>) -> (Vec<(String, Value, Backend)>, Vec<String>) {
    let (mut cases, mut skipped) = (Vec::new(), Vec::new());
    for (name, scenario) in scenarios() {
        let needs = |need: &str| scenario["needs"].as_array().is_some_and(|all| all.contains(&json!(need)));
        match host {
            Some(host) if needs("cancel") && !host.can_cancel => skipped.push(format!("{} {name}", host.name)),
            Some(host) => cases.push((format!("{} {name}", host.name), scenario, Backend::Redis)),
            None => {
                for backend in [Backend::Redis, Backend::Memory] {
                    if backend == Backend::Redis || !needs("redis") {
                        cases.push((format!("{} {name}", backend.name()), scenario.clone(), backend));
                    }
                }
            }
        }
    }
    (cases, skipped)
}

fn main() -> ExitCode {
    let (mut host, mut wanted) = (None, Vec::new());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--host" {
            match Host::start(&arguments.next().expect("a command after --host")) {
                Ok(started) => host = Some(Arc::new(started)),
                Err(why) => {
                    println!("FAILED {why}");
                    return ExitCode::FAILURE;
                }
            }
        } else if !argument.starts_with('-') {
            wanted.push(argument);
        }
    }
    let (mut cases, mut skipped) = cases(host.as_deref());
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    cases.retain(|(name, ..)| chosen(name));
    skipped.retain(|name| chosen(name));
    for name in &skipped {
        println!("skipped         {name}: nothing can be given up there");
    }
    cases.reverse();
    let (count, started) = (cases.len(), Instant::now());
    let (queue, failed) = (Mutex::new(cases), Mutex::new(Vec::new()));
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        loop {
            let Some((name, scenario, backend)) = locked(&queue).pop() else { return };
            let started = Instant::now();
            let end = runtime.block_on(run_and_end(World::new(scenario, backend, Driver::new(host.as_ref()))));
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
    let mut failed = failed.into_inner().unwrap_or_default();
    println!("{} of {count} scenarios passed in {:.1} s", count - failed.len(), started.elapsed().as_secs_f64());
    failed.extend(host.and_then(|host| host.finish().err()));
    for name in &failed {
        println!("FAILED {name}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
