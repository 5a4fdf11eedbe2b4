//! Several processes fight for one lock, on one node and on five: no two hold it at once, and tokens rise in the order
//! of the grants. `REDLOCK_GRANTS` sets how often each process takes it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command},
};

use redlock_tests::{
    history::{self, Findings},
    server::Server,
};

fn contend(nodes: usize, processes: usize, times: u32) {
    let times = env::var("REDLOCK_GRANTS").ok().and_then(|text| text.parse().ok()).unwrap_or(times);
    let servers: Vec<Server> = (0..nodes).map(|_| Server::start()).collect();
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
    let folder = env::temp_dir().join(format!("redlock-history-{}-{nodes}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let logs: Vec<PathBuf> = (0..processes).map(|process| folder.join(format!("{process}.log"))).collect();
    let children: Vec<Child> = logs
        .iter()
        .map(|log| {
            let mut contender = Command::new(env!("CARGO_BIN_EXE_contender"));
            contender.args([&urls, "fight", &times.to_string()]).arg(log).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let holds = history::read(&logs).unwrap();
    assert_eq!(holds.len(), processes * times as usize);
    assert_eq!(history::check(holds), Findings::default(), "logs in {}", folder.display());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn on_one_node() {
    contend(1, 8, 400);
}

#[test]
fn on_five_nodes() {
    contend(5, 4, 150);
}
