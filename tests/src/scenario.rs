//! What the words of a scenario mean in Rust: each verb as calls of the public API, each fault as something done to a
//! node. The words are defined in `scenarios/README.md`; the order of the steps and what they must do is the runner's.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redlock::{
    Client, Config, Identity, Lease, Lock, LockError, LockOptions, LostReason, Owner, Request, Ttl, Wire, seconds,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::nodes::{Backend, Node};

/// Everything one scenario touches.
pub struct World {
    /// The scenario.
    pub scenario: Value,
    /// Its servers.
    pub nodes: Mutex<Vec<Node>>,
    clients: Mutex<HashMap<String, Client>>,
    actors: Mutex<HashMap<String, Identity>>,
    leases: Mutex<HashMap<String, Arc<Lease>>>,
    texts: Mutex<HashMap<String, String>>,
    /// For each lock, whether somebody is inside a cycle, and the last token seen there.
    cycles: Mutex<HashMap<String, (bool, u64)>>,
}

/// What a mutex guards; a step that panicked has left it in order.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(value: &Value) -> String {
    match value {
        Value::Array(pair) => text(&pair[0]).repeat(pair[1].as_u64().unwrap_or_default() as usize),
        value => value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned(),
    }
}

fn millis(argument: &'static str, value: &Value) -> Result<Duration, LockError> {
    seconds(argument, value.as_f64().unwrap_or(f64::NAN) / 1000.0)
}

fn config(urls: Vec<String>, options: &Value) -> Result<Config, LockError> {
    let mut config = Config::new(urls);
    let invalid = |argument| LockError::Invalid { argument, detail: "cannot be spelled in Rust".to_owned() };
    for (option, value) in options.as_object().into_iter().flatten() {
        match option.as_str() {
            "watchdog_ms" => config.watchdog = millis("watchdog", value)?,
            "max_ttl_ms" => config.max_ttl = millis("max_ttl", value)?,
            "patience_ms" => config.patience = millis("patience", value)?,
            "quorum" => config.quorum = Some(value.as_u64().ok_or(invalid("quorum"))? as usize),
            "drift" => config.drift = value.as_f64().unwrap_or(f64::NAN),
            "prefix" => config.prefix = text(value),
            "wire" if value == "token" => config.wire = Wire::Token,
            "wire" => return Err(invalid("wire")),
            "actors" | "urls" => {}
            other => panic!("unknown option {other}"),
        }
    }
    Ok(config)
}

fn described(lease: &Lease) -> Value {
    json!({ "token": lease.token(), "name": lease.name(), "owner": lease.owner() })
}

impl World {
    /// The fresh world of a scenario.
    pub fn new(scenario: Value, backend: Backend) -> Self {
        let count = scenario["nodes"].as_u64().unwrap_or(1);
        Self {
            scenario,
            nodes: Mutex::new((0..count).map(|_| Node::start(backend)).collect()),
            clients: Mutex::default(),
            actors: Mutex::default(),
            leases: Mutex::default(),
            texts: Mutex::default(),
            cycles: Mutex::default(),
        }
    }

    fn urls(&self) -> Vec<String> {
        locked(&self.nodes).iter().map(Node::url).collect()
    }

    fn client(&self, actor: &str) -> Result<Client, LockError> {
        let mut shared = self.scenario["clients"].as_object().into_iter().flatten();
        let shared = shared.find(|(_, c)| c["actors"].as_array().is_some_and(|all| all.contains(&json!(actor))));
        let name = shared.map_or(actor, |(name, _)| name);
        if let Some(known) = locked(&self.clients).get(name) {
            return Ok(known.clone());
        }
        let mut options = self.scenario["options"].as_object().cloned().unwrap_or_default();
        options.extend(shared.and_then(|(_, own)| own.as_object().cloned()).unwrap_or_default());
        let client = Client::new(config(self.urls(), &Value::Object(options))?)?;
        locked(&self.clients).insert(name.to_owned(), client.clone());
        Ok(client)
    }

    /// A lease by its name in the scenario.
    pub fn lease(&self, name: &Value) -> Arc<Lease> {
        locked(&self.leases)
            .get(name.as_str().unwrap_or_default())
            .cloned()
            .unwrap_or_else(|| panic!("no lease {name}"))
    }

    fn keep(&self, step: &Value, lease: Lease) -> Value {
        let value = described(&lease);
        let mut leases = locked(&self.leases);
        // One without a name is held to the end all the same.
        let name = step["as"].as_str().map_or_else(|| format!("unnamed {}", leases.len()), str::to_owned);
        leases.insert(name, Arc::new(lease));
        value
    }

    fn lock(&self, step: &Value) -> Result<(Lock, Owner, Option<Duration>), LockError> {
        let actor = step["by"].as_str().expect("an actor");
        let mut options = LockOptions::default();
        match &step["ttl_ms"] {
            Value::Null => {}
            ttl if ttl == "adaptive" => options.ttl = Ttl::Adaptive,
            ttl => options.ttl = Ttl::Fixed(millis("ttl", ttl)?),
        }
        if let Some(wait) = step.get("wait_ms") {
            options.wait = Some(millis("wait", wait)?);
        }
        if let Some(max_hold) = step.get("max_hold_ms") {
            options.max_hold = Some(millis("max_hold", max_hold)?);
        }
        options.owner = step.get("owner").map(text);
        options.reentrant = step["reentrant"] != false;
        let wait = options.wait;
        Ok((self.client(actor)?.lock(&text(&step["lock"]), options)?, self.owner(actor), wait))
    }

    fn owner(&self, actor: &str) -> Owner {
        Owner::Ambient(locked(&self.actors).entry(actor.to_owned()).or_insert_with(Identity::new).clone())
    }

    async fn acquire(&self, step: &Value) -> Result<Lease, LockError> {
        let (lock, owner, wait) = self.lock(step)?;
        let wait = if step["do"] == "try_acquire" { Some(Duration::ZERO) } else { wait };
        let lease = lock.acquire_as(Request { wait, ..lock.request(owner) }).await?;
        assert!(lease.token() > 0 && lease.name() == text(&step["lock"]), "a lease of another lock");
        Ok(lease)
    }

    /// Takes turns on a lock; whoever is inside is alone there and has the largest token so far.
    async fn cycle(&self, step: &Value) -> Result<Value, LockError> {
        let name = text(&step["lock"]);
        for _ in 0..step["times"].as_u64().unwrap_or(1) {
            let lease = self.acquire(step).await?;
            let before = locked(&self.cycles).insert(name.clone(), (true, lease.token())).unwrap_or_default();
            assert!(!before.0, "two are inside");
            assert!(before.1 < lease.token(), "token {} after {}", lease.token(), before.1);
            tokio::task::yield_now().await;
            locked(&self.cycles).insert(name.clone(), (false, lease.token()));
            assert_eq!(lease.release().await?.as_str(), "released");
        }
        Ok(Value::Null)
    }

    /// Does what a step says and returns what it returned. Panics when the scenario itself is wrong.
    pub async fn perform(&self, step: &Value) -> Result<Value, LockError> {
        let actor = step["by"].as_str().unwrap_or_default();
        Ok(match step["do"].as_str().expect("a verb") {
            "acquire" | "try_acquire" => self.keep(step, self.acquire(step).await?),
            "unlock" => {
                let (lock, owner, _) = self.lock(step)?;
                json!(lock.release(&owner).await?.as_str())
            }
            "owned" => {
                let (lock, owner, _) = self.lock(step)?;
                json!(lock.owned(&owner))
            }
            "locked" => json!(self.lock(step)?.0.locked().await?),
            "inspect" => self.lock(step)?.0.inspect().await?.map_or(Value::Null, |info| {
                json!({ "owner": info.owner, "token": info.token, "ttl_ms": info.ttl.map(|ttl| ttl.as_millis() as u64) })
            }),
            "force_release" => json!(self.client(actor)?.force_release(&text(&step["lock"])).await?),
            "cycle" => self.cycle(step).await?,
            "attach" => {
                let known = locked(&self.texts).get(&text(&step["text"])).cloned();
                let known = known.unwrap_or_else(|| text(&step["text"]));
                let lease = self.client(actor)?.attach(&known, self.owner(actor)).await?;
                self.keep(step, lease)
            }
            "close" => json!(self.client(actor)?.close().await),
            "client" => {
                let urls = step["options"]["urls"].as_array();
                let urls = urls.map(|urls| urls.iter().map(|url| text(url).replace("{0}", &self.urls()[0])).collect());
                let config = config(urls.unwrap_or_else(|| self.urls()), &step["options"])?;
                json!(Client::new(config)?.close().await)
            }
            "release" => json!(self.lease(&step["lease"]).release().await?.as_str()),
            "held" => json!(self.lease(&step["lease"]).held()),
            "remaining" => json!(self.lease(&step["lease"]).remaining().as_millis() as u64),
            "check" => json!(self.lease(&step["lease"]).check()?),
            "extend" => json!(self.lease(&step["lease"]).extend(millis("ttl", &step["ttl_ms"])?).await?),
            "wait_lost" => json!(self.lease(&step["lease"]).lost().await.map(LostReason::as_str)),
            "detach" => {
                let detached = self.lease(&step["lease"]).detach()?;
                locked(&self.texts).insert(text(&step["as"]), detached);
                Value::Null
            }
            "sleep" => json!(sleep(Duration::from_millis(step["ms"].as_u64().unwrap_or_default())).await),
            "until" => loop {
                if self.on_nodes(step).iter().all(|seen| *seen == step["exists"] || *seen == step["waiting"]) {
                    break Value::Null;
                }
                sleep(Duration::from_millis(5)).await;
            },
            _ => {
                let seen = self.on_nodes(step);
                assert!(seen.iter().all(|one| *one == seen[0]), "the nodes differ: {seen:?}");
                seen[0].clone()
            }
        })
    }

    /// Does something to, or looks at, each of the nodes a step is about.
    fn on_nodes(&self, step: &Value) -> Vec<Value> {
        let mut nodes = locked(&self.nodes);
        let chosen: Vec<usize> = match &step["node"] {
            Value::Null => (0..nodes.len()).filter(|node| nodes[*node].is_up()).collect(),
            Value::Array(list) => list.iter().filter_map(Value::as_u64).map(|node| node as usize).collect(),
            one => vec![one.as_u64().expect("a node") as usize],
        };
        let key = step["key"].as_str().unwrap_or_default();
        let ttl = step["ttl_ms"].as_u64().map(Duration::from_millis);
        let act = |node: &mut Node| match step["do"].as_str().expect("a verb") {
            "stop_node" => json!(node.stop()),
            "start_node" => json!(node.restart()),
            "freeze_node" => json!(node.freeze()),
            "thaw_node" => json!(node.thaw()),
            "flush_node" => json!(node.flush()),
            "steal" => json!(node.delete(key)),
            "put" => {
                node.put(key, step["type"] == "hash");
                json!(ttl.map(|ttl| node.expire(key, ttl)))
            }
            "expire" => json!(node.expire(key, ttl.expect("a ttl"))),
            "type" => json!(node.kind(key)),
            "exists" => json!(node.exists(key)),
            "until" if step.get("exists").is_some() => json!(node.exists(key)),
            "until" => json!(node.waiting(key)),
            verb => panic!("unknown verb {verb}"),
        };
        chosen.into_iter().map(|node| act(&mut nodes[node])).collect()
    }
}
