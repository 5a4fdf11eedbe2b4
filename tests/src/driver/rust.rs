//! Carries out the verbs of a scenario in Rust, with calls of the public API.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use redlock::{
    Client, Identity, Lease, Lock, LockError, LostReason, Owner, Request,
    ffi::{Idiom::SnakeSeconds, Part, Setting, Unbound},
};
use serde_json::{Value, json};

use crate::locked;

/// The clients, owners and leases of one scenario.
#[derive(Default)]
pub struct Actors {
    clients: Mutex<HashMap<String, Client>>,
    identities: Mutex<HashMap<String, Identity>>,
    leases: Mutex<HashMap<String, Arc<Lease>>>,
    texts: Mutex<HashMap<String, String>>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Options in the form in which hosts pass them, with times in seconds.
fn settings(given: &Value, wanted: impl Fn(&str) -> bool) -> Vec<(String, Setting)> {
    let given = given.as_object().into_iter().flatten().filter(|(name, _)| wanted(name));
    given.map(|(name, value)| (name.trim_end_matches("_ms").to_owned(), setting(name, value))).collect()
}

fn setting(name: &str, value: &Value) -> Setting {
    match value {
        Value::Bool(flag) => Setting::Flag(*flag),
        Value::String(word) if word != "nan" => Setting::Text(word.clone()),
        number => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            Setting::Number(if name.ends_with("_ms") { number / 1000.0 } else { number })
        }
    }
}

fn connect(client: &Value) -> Result<Client, LockError> {
    let urls = client["urls"].as_array().into_iter().flatten().map(|url| text(url).to_owned());
    Client::new(SnakeSeconds.config(urls, settings(&client["options"], |_| true))?)
}

impl Actors {
    fn client(&self, order: &Value) -> Result<Client, LockError> {
        let mut clients = locked(&self.clients);
        let name = text(&order["client"]["name"]);
        if let Some(known) = clients.get(name) {
            return Ok(known.clone());
        }
        let client = connect(&order["client"])?;
        clients.insert(name.to_owned(), client.clone());
        Ok(client)
    }

    fn owner(&self, order: &Value) -> Owner {
        let actor = text(&order["actor"]).to_owned();
        Owner::Ambient(locked(&self.identities).entry(actor).or_insert_with(Identity::new).clone())
    }

    fn lock(&self, order: &Value) -> Result<Lock, LockError> {
        let step = &order["step"];
        let options = |name: &str| {
            ["ttl_ms", "wait_ms", "max_hold_ms", "min_hold_ms", "owner", "reentrant", "fair"].contains(&name)
        };
        let options = SnakeSeconds.lock_options(settings(step, options))?;
        let (client, name) = (self.client(order)?, text(&step["lock"]).to_owned());
        let part = match &step["permits"] {
            Value::Null => Part::named(step["part"].as_str()),
            permits => Part::permits(
                &step.get("n").map_or(Setting::Number(1.0), |n| setting("n", n)),
                &setting("permits", permits),
            )?,
        };
        Unbound { name, options, part }.of(&client)
    }

    fn lease(&self, step: &Value) -> Arc<Lease> {
        let known = locked(&self.leases).get(text(&step["lease"])).cloned();
        known.unwrap_or_else(|| panic!("no lease {}", step["lease"]))
    }

    fn keep(&self, step: &Value, lease: Lease) -> Value {
        let slots: Vec<u32> = lease.slots().iter().map(|slot| slot.number).collect();
        let value = json!({ "token": lease.token(), "name": lease.name(), "owner": lease.owner(), "slots": slots });
        let mut leases = locked(&self.leases);
        // A lease without a name is also held to the end of the scenario.
        let name = step["as"].as_str().map_or_else(|| format!("unnamed {}", leases.len()), str::to_owned);
        leases.insert(name, Arc::new(lease));
        value
    }

    /// Carries out an order and returns its result. Panics if the scenario itself is wrong.
    pub(super) async fn perform(&self, order: &Value) -> Result<Value, LockError> {
        let step = &order["step"];
        Ok(match text(&step["do"]) {
            verb @ ("acquire" | "try_acquire") => {
                let lock = self.lock(order)?;
                let request = lock.request(self.owner(order));
                let wait = if verb == "try_acquire" { Some(Duration::ZERO) } else { request.wait };
                self.keep(step, lock.acquire_as(Request { wait, ..request }).await?)
            }
            "unlock" => json!(self.lock(order)?.release(&self.owner(order)).await?.as_str()),
            "owned" => json!(self.lock(order)?.owned(&self.owner(order))),
            "locked" => json!(self.lock(order)?.locked().await?),
            "available" => json!(self.lock(order)?.available().await?),
            "inspect" => self.lock(order)?.inspect().await?.map_or(Value::Null, |info| {
                let ttl = info.ttl.map(|ttl| ttl.as_millis() as u64);
                let process = info.host.is_some_and(|host| !host.is_empty()) && info.pid.is_some();
                let recent = info.since.is_some_and(is_recent);
                json!({ "owner": info.owner, "token": info.token, "ttl_ms": ttl, "kind": info.kind.as_str(),
                    "owners": info.owners.len(), "app": info.app, "process": process, "recent": recent })
            }),
            "force_release" => json!(self.client(order)?.force_release(text(&step["lock"])).await?),
            "attach" => {
                let given = text(&step["text"]);
                let known = locked(&self.texts).get(given).cloned().unwrap_or_else(|| given.to_owned());
                self.keep(step, self.client(order)?.attach(&known, self.owner(order)).await?)
            }
            "close" => json!(self.client(order)?.close().await),
            "client" => json!(connect(&order["client"])?.close().await),
            "release" => json!(self.lease(step).release().await?.as_str()),
            "held" => json!(self.lease(step).held()),
            "remaining" => json!(self.lease(step).remaining().as_millis() as u64),
            "check" => json!(self.lease(step).check()?),
            "extend" => json!(
                self.lease(step).extend(SnakeSeconds.duration("ttl", &setting("ttl_ms", &step["ttl_ms"]))?).await?
            ),
            "downgrade" => json!(self.lease(step).downgrade().await?),
            "try_upgrade" => json!(self.lease(step).try_upgrade().await?),
            "token" => json!(self.lease(step).token()),
            "wait_lost" => json!(self.lease(step).lost().await.map(LostReason::as_str)),
            "detach" => {
                let detached = self.lease(step).detach()?;
                locked(&self.texts).insert(text(&step["as"]).to_owned(), detached);
                Value::Null
            }
            verb => panic!("unknown verb {verb}"),
        })
    }

    pub(super) async fn end(&self) {
        let clients: Vec<Client> = locked(&self.clients).drain().map(|(_, client)| client).collect();
        for client in clients {
            client.close().await;
        }
    }
}

/// Whether a time is less than a minute ago, or a node's clock is ahead by less than that.
fn is_recent(time: SystemTime) -> bool {
    let away = SystemTime::now().duration_since(time).unwrap_or_else(|error| error.duration());
    away < Duration::from_secs(60)
}
