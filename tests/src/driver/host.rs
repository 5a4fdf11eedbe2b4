//! A host process, which carries out the orders of several scenarios at once, as JSON lines on its standard input and
//! output. This type owns the process. If a host ends or violates the protocol, its pending orders and all later ones
//! fail.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{
    select,
    sync::{Notify, oneshot},
};

use super::{End, Failure};
use crate::locked;

/// How long a host may take to start; virtual machines are slow on a busy computer.
const START: Duration = Duration::from_secs(60);
/// How long it may take to end.
const STOP: Duration = Duration::from_secs(10);

/// The host of a language.
pub struct Host {
    /// The name that it reports.
    pub name: String,
    /// Whether each actor is an owner there.
    pub has_actors: bool,
    /// Whether a waiting call can be cancelled there.
    pub can_cancel: bool,
    child: Mutex<Child>,
    orders: Mutex<Option<mpsc::Sender<Value>>>,
    calls: Arc<Mutex<Calls>>,
    last: AtomicU64,
}

/// The orders that it has not answered.
#[derive(Default)]
struct Calls {
    unanswered: HashMap<u64, oneshot::Sender<Value>>,
    /// Why it will answer nothing more.
    broken: Option<String>,
}

impl Host {
    /// Starts a host with a shell command, in the project's directory.
    pub fn start(command: &str) -> Result<Self, String> {
        let mut child = Command::new("/bin/sh")
            // The shell replaces itself by the host, so that killing its process kills the host.
            .args(["-c", &format!("exec {command}")])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (orders, to_write) = mpsc::channel();
        let (greet, greeting) = mpsc::channel();
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let calls = Arc::new(Mutex::new(Calls::default()));
        let heard = calls.clone();
        thread::spawn(move || write(input, &to_write));
        thread::spawn(move || listen(output, &greet, &heard));
        let mut host = Self {
            name: String::new(),
            has_actors: false,
            can_cancel: false,
            child: Mutex::new(child),
            orders: Mutex::new(Some(orders)),
            calls,
            last: AtomicU64::new(0),
        };
        let hello: Value = greeting.recv_timeout(START).map_err(|_| format!("{command}: it sent no greeting"))?;
        let (Some(name), Some(actors), Some(cancel)) =
            (hello["hello"].as_str(), hello["actors"].as_bool(), hello["cancel"].as_bool())
        else {
            return Err(format!("{command}: {hello} is no greeting"));
        };
        (host.name, host.has_actors, host.can_cancel) = (name.to_owned(), actors, cancel);
        Ok(host)
    }

    /// A number for an order or a scenario.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Relaxed)
    }

    fn say(&self, line: Value) {
        if let Some(orders) = &*locked(&self.orders) {
            // It fails only if the host is gone, which the listener reports.
            let _ = orders.send(line);
        }
    }

    /// Sends a line and waits for the reply with this number.
    async fn ask(&self, number: u64, line: Value, given_up: &Notify) -> Result<Value, Failure> {
        let (answer, mut answered) = oneshot::channel();
        let broken = {
            let mut calls = locked(&self.calls);
            calls.unanswered.insert(number, answer);
            calls.broken.clone()
        };
        if let Some(why) = broken {
            return Err(Failure::new("host", why));
        }
        self.say(line);
        let answer = select! {
            biased;
            answer = &mut answered => answer,
            () = given_up.notified() => {
                self.say(json!({ "cancel": number }));
                answered.await
            }
        };
        answer.map_err(|_| Failure::new("host", locked(&self.calls).broken.clone().unwrap_or_default()))
    }

    pub(super) async fn perform(&self, scenario: u64, mut order: Value, given_up: &Notify) -> End {
        let id = self.number();
        order["id"] = json!(id);
        order["scenario"] = json!(scenario);
        let answer = self.ask(id, order, given_up).await?;
        if let Some(value) = answer.get("value") {
            return Ok(value.clone());
        }
        if answer["cancelled"] == true {
            return Err(Failure::cancelled());
        }
        let error = &answer["error"];
        let (Some(code), Some(message)) = (error["code"].as_str(), error["message"].as_str()) else {
            return Err(Failure::new("host", format!("{answer} is no answer")));
        };
        Err(Failure { reason: error["reason"].as_str().unwrap_or_default().to_owned(), ..Failure::new(code, message) })
    }

    pub(super) async fn end(&self, scenario: u64) -> Result<(), Failure> {
        self.ask(scenario, json!({ "end": scenario }), &Notify::new()).await.map(drop)
    }

    /// Ends its input, upon which it must exit.
    pub fn finish(&self) -> Result<(), String> {
        drop(locked(&self.orders).take());
        let (mut child, started) = (locked(&self.child), Instant::now());
        while started.elapsed() < STOP {
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the host ended with {status}")),
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(format!("the host did not end within {STOP:?} of the end of its input"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut child = locked(&self.child);
        // Fails only if the host has ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Writes the orders. It has a thread of its own, since a host that hangs reads nothing.
fn write(mut input: ChildStdin, orders: &mpsc::Receiver<Value>) {
    while let Ok(line) = orders.recv() {
        if writeln!(input, "{line}").is_err() {
            return;
        }
    }
}

/// Delivers the host's replies, until it ends or violates the protocol.
fn listen(output: ChildStdout, greet: &mpsc::Sender<Value>, calls: &Mutex<Calls>) {
    let mut greeted = false;
    let mut broken = "the host has ended".to_owned();
    for line in BufReader::new(output).lines() {
        let said = line.map_err(|error| error.to_string()).and_then(|line| {
            serde_json::from_str::<Value>(&line).map_err(|_| format!("the host said {line:?}, which is no JSON"))
        });
        let answer = match said {
            Ok(answer) => answer,
            Err(why) => {
                broken = why;
                break;
            }
        };
        if !greeted {
            greeted = true;
            // If the greeting comes too late, it has no receiver.
            let _ = greet.send(answer);
            continue;
        }
        let number = answer["id"].as_u64().or(answer["ended"].as_u64());
        let Some(asked) = number.and_then(|number| locked(calls).unanswered.remove(&number)) else {
            broken = format!("the host sent {answer}, which answers no pending order");
            break;
        };
        // The runner may have timed out meanwhile.
        let _ = asked.send(answer);
    }
    let mut calls = locked(calls);
    calls.broken = Some(broken);
    calls.unanswered.clear();
}
