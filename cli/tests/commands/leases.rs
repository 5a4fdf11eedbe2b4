//! `acquire`, `extend` and `release`.

use redlock_tests::{deployments::Cluster, server::Server};

use crate::support::{command, exists, on, on_quorum, run, with_stdin};

fn remaining(server: &Server, key: &str) -> i64 {
    server.command(&["PTTL", key])
}

#[test]
fn a_lease_goes_from_command_to_command() {
    let server = Server::start();
    let acquired = on(&server, &["acquire", "x", "--ttl", "30s"]);
    assert_eq!((acquired.code, acquired.stderr.as_str()), (0, ""));
    let first = acquired.line().to_owned();
    assert!(first.starts_with("redlock1:"), "{first}");
    assert!((20_000..=30_000).contains(&remaining(&server, "x")));

    let busy = on(&server, &["acquire", "x", "--ttl", "30", "-n"]);
    assert_eq!((busy.code, busy.stdout.as_str()), (75, ""));
    assert!(busy.stderr.contains("\"x\"") && busy.stderr.contains("--wait"), "{}", busy.stderr);
    assert_eq!(on(&server, &["acquire", "x", "--ttl", "30", "-w", "100ms"]).code, 75);

    let extended = on(&server, &["extend", &first, "10m"]);
    assert_eq!((extended.code, extended.stderr.as_str()), (0, ""));
    let second = extended.line().to_owned();
    assert_ne!(first, second);
    assert!(remaining(&server, "x") > 500_000);
    let used = on(&server, &["release", &first]);
    assert_eq!(used.code, 79, "each text works once");
    assert!(used.stderr.contains("lock \"x\": its text was used before, or its lease is over"), "{}", used.stderr);

    let released = with_stdin(&server, &["release", "-"], &format!("{second}\n"));
    assert_eq!((released.code, released.stdout.as_str(), released.stderr.as_str()), (0, "", ""));
    assert!(!exists(&server, "x"));
    assert_eq!(on(&server, &["release", &second]).code, 79);
    assert_eq!(on(&server, &["extend", &second, "5"]).code, 79);
}

#[test]
fn a_short_max_ttl_needs_no_other_option() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let acquired = on_quorum(&servers, &["--max-ttl", "20s", "acquire", "x", "--ttl", "10s"]);
    assert_eq!(acquired.code, 0, "{acquired:?}");
    for (arguments, code) in [
        (&["inspect", "x"][..], 0),
        (&["ls"], 0),
        (&["exec", "y", "--", "true"], 0),
        (&["exec", "y", "--watchdog", "30s", "--", "true"], 64),
        (&["release", acquired.line()], 0),
    ] {
        let ran = on_quorum(&servers, &[&["--max-ttl", "20s"], arguments].concat());
        assert_eq!(ran.code, code, "{arguments:?} {ran:?}");
    }
}

#[test]
fn the_objects_have_names_tokens_and_seconds() {
    let server = Server::start();
    let acquired = on(&server, &["acquire", "x", "--ttl", "30s", "--json"]).object();
    assert_eq!(acquired["name"], "x");
    assert!(acquired["token"].as_str().is_some_and(|token| token.parse::<u64>().is_ok()), "{acquired}");
    assert!(acquired["ttl"].as_f64().is_some_and(|ttl| ttl > 20.0 && ttl <= 30.0), "{acquired}");
    let lease = acquired["lease"].as_str().expect("a text");
    let extended = on(&server, &["--json", "extend", lease, "40s"]).object();
    assert_eq!((&extended["name"], &extended["token"]), (&acquired["name"], &acquired["token"]));
    assert!(extended["ttl"].as_f64().is_some_and(|ttl| ttl > 30.0), "{extended}");
    let released = on(&server, &["release", "--json", extended["lease"].as_str().expect("a text")]).object();
    assert_eq!(released["outcome"], "released");
}

#[test]
fn texts_that_are_no_leases_are_refused() {
    let server = Server::start();
    for arguments in [&["release", "deploy"][..], &["extend", "redlock1:x", "5"], &["release", "-"]] {
        let ran = on(&server, arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (64, ""), "{ran:?}");
    }
}

#[test]
fn a_lease_whose_text_cannot_be_printed_is_released() {
    let server = Server::start();
    let mut acquire = command(&["acquire", "x", "--ttl", "60"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device without space");
    acquire.env("REDLOCK_URL", server.url()).stdout(full);
    let ran = run_with_own_stdout(acquire);
    assert_eq!(ran, 74);
    assert!(!exists(&server, "x"));
}

fn run_with_own_stdout(mut command: std::process::Command) -> i32 {
    command.status().expect("redlock runs").code().expect("an exit code")
}

#[test]
fn force_ends_the_holder_and_asks_before() {
    let server = Server::start();
    let acquire = |ttl: &str| on(&server, &["acquire", "x", "--ttl", ttl, "--json"]).object();
    let free = on(&server, &["release", "x", "--force", "--yes"]);
    assert_eq!(free.code, 1, "{free:?}");

    let first = acquire("60");
    let unasked = on(&server, &["release", "x", "--force"]);
    assert_eq!(unasked.code, 64, "{unasked:?}");
    assert!(unasked.stderr.contains("--yes") && unasked.stderr.contains("held by"), "{}", unasked.stderr);
    assert!(exists(&server, "x"));
    let forced = on(&server, &["release", "x", "--force", "--yes", "--json"]);
    assert_eq!((forced.code, forced.object()["released"].as_bool()), (0, Some(true)));
    assert!(!exists(&server, "x"));
    assert_eq!(on(&server, &["release", first["lease"].as_str().expect("a text")]).code, 79);
}

#[test]
fn the_name_of_a_holder_controls_no_terminal() {
    let server = Server::start();
    assert_eq!(on(&server, &["acquire", "x", "--ttl", "60", "--owner", "\x1b[31mred"]).code, 0);
    let asked = on(&server, &["release", "x", "--force"]);
    assert!(asked.stderr.contains("red") && !asked.stderr.contains('\x1b'), "{asked:?}");
}

#[test]
fn a_token_ends_its_own_tenure_only() {
    let server = Server::start();
    let acquire = || on(&server, &["acquire", "x", "--ttl", "60", "--json"]).object();
    let text = |object: &serde_json::Value, member: &str| object[member].as_str().expect("a text").to_owned();
    let first = acquire();
    assert_eq!(on(&server, &["release", &text(&first, "lease")]).code, 0);
    let second = acquire();
    let old = on(&server, &["release", "x", "--force", "--yes", "--token", &text(&first, "token")]);
    assert_eq!(old.code, 1, "{old:?}");
    assert!(exists(&server, "x"));
    let own = on(&server, &["release", "x", "--force", "--yes", "--token", &text(&second, "token")]);
    assert_eq!(own.code, 0, "{own:?}");
    assert!(!exists(&server, "x"));
}

#[test]
fn leases_and_tokens_work_on_a_quorum_and_a_cluster() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let cluster = Cluster::start(3, 0);
    let on_cluster = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("REDLOCK_URL", cluster.url());
        run(command)
    };
    let on_quorum = |arguments: &[&str]| on_quorum(&servers, arguments);
    for redlock in [&on_quorum as &dyn Fn(&[&str]) -> crate::support::Ran, &on_cluster] {
        let lease = redlock(&["acquire", "x", "--ttl", "30"]);
        assert_eq!(lease.code, 0, "{lease:?}");
        assert_eq!(redlock(&["release", lease.line()]).code, 0);
        let object = redlock(&["acquire", "x", "--ttl", "30", "--json"]).object();
        let token: u64 = object["token"].as_str().expect("a token").parse().expect("a number");
        let wrong = (token - 1).to_string();
        assert_eq!(redlock(&["release", "x", "--force", "-y", "--token", &wrong]).code, 1);
        assert_eq!(redlock(&["inspect", "x"]).code, 0);
        assert_eq!(redlock(&["release", "x", "--force", "-y", "--token", &token.to_string()]).code, 0);
        assert_eq!(redlock(&["inspect", "x"]).code, 1);
    }
}
