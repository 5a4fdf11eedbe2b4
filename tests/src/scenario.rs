//! One scenario while it runs: its servers and their faults, its clock, and the orders to its driver.
//! `scenarios/README.md` defines the words. The runner decides the order of the steps and checks their results.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use serde_json::{Map, Value, json};
use tokio::{sync::Notify, time::sleep};

use crate::{
    driver::{Driver, End, Failure},
    locked,
    nodes::{Backend, Node},
};

/// The fields of a step that its driver gets. The others are for the runner's checks.
const ORDERED: [&str; 15] = [
    "do",
    "lock",
    "part",
    "permits",
    "n",
    "owner",
    "ttl_ms",
    "wait_ms",
    "max_hold_ms",
    "min_hold_ms",
    "reentrant",
    "fair",
    "text",
    "lease",
    "as",
];

/// The state of one scenario.
pub struct World {
    /// The scenario.
    pub scenario: Value,
    /// Its servers.
    pub nodes: Mutex<Vec<Node>>,
    driver: Driver,
    leases: Mutex<HashMap<String, Known>>,
    /// For each lock, whether an actor is inside a cycle, and the last token seen there.
    cycles: Mutex<HashMap<String, (bool, u64)>>,
}

/// What an acquire returned about a lease.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its token.
    pub token: u64,
    /// Its owner.
    pub owner: String,
    /// The actor that got it.
    actor: String,
}

/// A text, which a scenario may give as a text and a number of repetitions.
fn text(value: &Value) -> String {
    match value {
        Value::Array(pair) => text(&pair[0]).repeat(pair[1].as_u64().unwrap_or_default() as usize),
        value => value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned(),
    }
}

impl World {
    /// A new world for a scenario.
    pub fn new(scenario: Value, backend: Backend, driver: Driver) -> Self {
        let count = scenario["nodes"].as_u64().unwrap_or(1);
        let nodes = Mutex::new((0..count).map(|_| Node::start(backend)).collect());
        Self { scenario, nodes, driver, leases: Mutex::default(), cycles: Mutex::default() }
    }

    /// A lease by its name in the scenario.
    pub fn lease(&self, name: &Value) -> Known {
        let known = locked(&self.leases).get(name.as_str().unwrap_or_default()).cloned();
        known.unwrap_or_else(|| panic!("no lease {name}"))
    }

    fn urls(&self) -> Vec<String> {
        locked(&self.nodes).iter().map(Node::url).collect()
    }

    /// Carries out a step and returns its result. Panics if the scenario itself is wrong.
    pub async fn perform(&self, step: &Value, given_up: &Notify) -> End {
        Ok(match step["do"].as_str().expect("a verb") {
            "cycle" => self.cycle(step, given_up).await?,
            _ if step.get("by").is_some() || step.get("lease").is_some() => self.act(step, given_up).await?,
            "sleep" => json!(sleep(Duration::from_millis(step["ms"].as_u64().unwrap_or_default())).await),
            "until" => loop {
                let mut seen = self.on_nodes(step);
                if step["waiting"].as_u64().is_some_and(|count| count > 0) {
                    // A waiter listens on as few nodes as have one in common with every quorum.
                    seen.sort_by_key(|count| std::cmp::Reverse(count.as_u64()));
                    seen.truncate(seen.len().div_ceil(2));
                }
                if seen.iter().all(|seen| *seen == step["exists"] || *seen == step["waiting"]) {
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

    /// Closes the scenario's clients.
    pub async fn end(&self) -> Result<(), Failure> {
        self.driver.end().await
    }

    /// Makes an actor carry out a step, and remembers the lease if there is one.
    async fn act(&self, step: &Value, given_up: &Notify) -> End {
        let order = self.order(step);
        let actor = order["actor"].as_str().unwrap_or_default().to_owned();
        let value = self.driver.perform(order, given_up).await?;
        if let Some("acquire" | "try_acquire" | "attach") = step["do"].as_str() {
            let named = step.get("lock").is_none_or(|lock| value["name"] == text(lock));
            let (Some(token @ 1..), Some(owner), true) = (value["token"].as_u64(), value["owner"].as_str(), named)
            else {
                panic!("{value} is not the lease that was requested");
            };
            if let Some(name) = step["as"].as_str() {
                locked(&self.leases).insert(name.to_owned(), Known { token, owner: owner.to_owned(), actor });
            }
        }
        Ok(value)
    }

    /// The order for a step: the actor, its client, and plain values.
    fn order(&self, step: &Value) -> Value {
        let verb = step["do"].as_str().unwrap_or_default();
        let actor = step["by"].as_str().map_or_else(|| self.lease(&step["lease"]).actor, str::to_owned);
        let mut shared = self.scenario["clients"].as_object().into_iter().flatten();
        let shared = shared.find(|(_, one)| one["actors"].as_array().is_some_and(|all| all.contains(&json!(actor))));
        let (name, own) = shared.map_or((&actor, None), |(name, own)| (name, own.as_object()));
        let mut options = self.scenario["options"].as_object().cloned().unwrap_or_default();
        options.extend(own.cloned().unwrap_or_default());
        let mut urls = self.urls();
        if verb == "client" {
            options = step["options"].as_object().cloned().unwrap_or_default();
            if let Some(Value::Array(given)) = options.remove("urls") {
                urls = given.iter().map(|url| text(url).replace("{0}", &urls[0])).collect();
            }
        }
        options.remove("actors");

        let mut plain: Map<String, Value> = step.as_object().cloned().unwrap_or_default();
        plain.retain(|field, _| ORDERED.contains(&field.as_str()));
        for field in ["lock", "owner", "text"] {
            plain.entry(field).and_modify(|value| *value = json!(text(value)));
        }
        let owns = self.scenario["needs"].as_array().is_some_and(|needs| needs.contains(&json!("actors")));
        if owns && !self.driver.has_actors() && plain.contains_key("lock") {
            plain.entry("owner").or_insert(json!(format!("{name}/{actor}")));
        }
        json!({ "actor": actor, "client": { "name": name, "urls": urls, "options": options }, "step": plain })
    }

    /// Acquires and releases a lock a number of times. The holder must be alone and have the largest token so far.
    async fn cycle(&self, step: &Value, given_up: &Notify) -> End {
        let lock = text(&step["lock"]);
        let lease = format!("cycle of {}", step["by"]);
        let mut acquire = step.clone();
        acquire["do"] = json!("acquire");
        acquire["as"] = json!(lease);
        for _ in 0..step["times"].as_u64().unwrap_or(1) {
            let token = self.act(&acquire, given_up).await?["token"].as_u64().unwrap_or_default();
            let (inside, last) = locked(&self.cycles).insert(lock.clone(), (true, token)).unwrap_or_default();
            assert!(!inside, "two are inside");
            assert!(last < token, "token {token} after {last}");
            tokio::task::yield_now().await;
            locked(&self.cycles).insert(lock.clone(), (false, token));
            let outcome = self.act(&json!({ "do": "release", "lease": lease }), given_up).await?;
            assert_eq!(outcome, "released");
        }
        Ok(Value::Null)
    }

    /// Carries out a step on each of its nodes: a fault or a query.
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
