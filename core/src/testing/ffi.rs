//! Tests of options in each host's spelling, and of calls that end in their host's queue.

use std::{
    sync::{Arc, mpsc::channel},
    thread,
    time::Duration,
};

use super::*;
use crate::{
    client::Client,
    config::{Config, LockOptions, Ttl},
    error::LockError,
    ffi::completions::Started,
    owner::Owner,
};

fn options(list: &[(&str, Setting)]) -> Vec<(String, Setting)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn refused<T>(result: Result<T, LockError>, idiom: Idiom) -> String {
    result.err().map(|error| idiom.failure(&error).message).unwrap()
}

#[test]
fn options_are_spelled_as_their_host_spells() {
    let node = Idiom::CamelMillis;
    let given = options(&[("maxTtl", Setting::Number(1500.0)), ("tokenKey", Setting::Text("redisson".to_owned()))]);
    let config = node.config(["memory://".to_owned()], given).unwrap();
    assert_eq!(config.max_ttl, Duration::from_millis(1500));
    assert_eq!(config.token_key, crate::TokenKey::Redisson);
    let python = Idiom::SnakeSeconds;
    let config = python.config(["memory://".to_owned()], options(&[("max_ttl", Setting::Number(1.5))])).unwrap();
    assert_eq!(config.max_ttl, Duration::from_millis(1500));

    let unknown = refused(node.config([], options(&[("max_ttl", Setting::Number(1.0))])), node);
    assert!(unknown.contains("\"max_ttl\"") && unknown.contains("maxTtl, minReplicas, patience"), "{unknown}");
    let wrong = refused(node.lock_options(options(&[("maxHold", Setting::Flag(true))])), node);
    assert_eq!(wrong, "maxHold: must be a number of milliseconds, not true");
    let wrong = refused(python.lock_options(options(&[("max_hold", Setting::Number(-1.0))])), python);
    assert_eq!(wrong, "max_hold: must be a number of seconds of at least 0, not -1");
    let secret = refused(node.config([], options(&[("password", Setting::Number(1234.0))])), node);
    assert!(secret.starts_with("password: ") && !secret.contains("1234"), "{secret}");
}

/// On a quorum `max_ttl` bounds every ttl, and so the default of the one that the watchdog renews.
#[test]
fn the_default_of_watchdog_is_at_most_max_ttl_on_a_quorum() {
    let idiom = Idiom::SnakeSeconds;
    let made = |nodes: usize, given: &[(&str, f64)]| {
        let urls = (0..nodes).map(|node| format!("memory://{node}"));
        let given: Vec<_> = given.iter().map(|(name, number)| (*name, Setting::Number(*number))).collect();
        let settings = idiom.config(urls, options(&given)).and_then(Config::validate);
        settings.map(|settings| settings.config.watchdog.as_millis())
    };
    assert_eq!(made(3, &[("max_ttl", 20.0)]).unwrap(), 20_000);
    assert_eq!(made(3, &[("max_ttl", 0.3)]).unwrap(), 300);
    assert_eq!(made(3, &[("max_ttl", 40.0)]).unwrap(), 30_000);
    assert_eq!(made(3, &[("watchdog", 10.0), ("max_ttl", 20.0)]).unwrap(), 10_000);
    assert_eq!(made(1, &[("max_ttl", 0.05)]).unwrap(), 30_000, "it has no effect on one node");

    let above = refused(made(3, &[("watchdog", 30.0), ("max_ttl", 20.0)]), idiom);
    assert_eq!(above, "watchdog: 30s is more than the client's max_ttl of 20s, which bounds every ttl on a quorum");
    let short = refused(made(3, &[("max_ttl", 0.299)]), idiom);
    assert_eq!(short, "max_ttl: must be at least 300ms on a quorum, the least watchdog, not 299ms");
}

#[test]
fn whole_numbers_have_one_range_each() {
    let idiom = Idiom::CamelMillis;
    let part = |n: Setting, of: Setting| refused(Part::permits(&n, &of), idiom);
    for wrong in [0.0, -1.0, 65_537.0, 100_000.0, 2_000_000.0] {
        let permits = part(Setting::Number(1.0), Setting::Number(wrong));
        assert_eq!(permits, format!("permits: must be from 1 to 65536, not {wrong}"));
        let n = part(Setting::Number(wrong), Setting::Number(4.0));
        assert_eq!(n, format!("n: must be from 1 to 4, the number of permits, not {wrong}"));
    }
    let text = || Setting::Text("2".to_owned());
    assert_eq!(part(Setting::Number(1.0), Setting::Number(1.5)), "permits: must be a whole number, not 1.5");
    assert_eq!(part(text(), Setting::Number(4.0)), "n: must be a whole number, not \"2\"");
    let part = Part::permits(&Setting::Number(2.0), &Setting::Number(65_536.0)).unwrap();
    assert_eq!(part, Part::Permits { n: 2, of: 65_536 });

    let made = |name: &str, number: f64| {
        let given = options(&[(name, Setting::Number(number))]);
        refused(idiom.config(["redis://127.0.0.1:1".to_owned()], given).and_then(Config::validate), idiom)
    };
    assert_eq!(made("quorum", 2_000_000.0), "quorum: must be from 1 (a majority of 1) to 1, not 2000000");
    assert_eq!(made("quorum", 0.0), "quorum: must be a whole number of at least 1, not 0");
    assert_eq!(made("minReplicas", 2_000_000.0), "minReplicas: must be from 0 to 1000, not 2000000");
    assert_eq!(made("minReplicas", -1.0), "minReplicas: must be a whole number of at least 0, not -1");
    assert_eq!(made("minReplicas", f64::INFINITY), "minReplicas: must be a whole number of at least 0, not inf");
}

#[test]
fn a_lock_takes_a_time_or_adaptive() {
    let idiom = Idiom::CamelMillis;
    let ttl = |value: Setting| idiom.lock_options(options(&[("ttl", value)])).map(|lock| lock.ttl);
    assert_eq!(ttl(Setting::Number(250.0)).unwrap(), Ttl::Fixed(Duration::from_millis(250)));
    assert_eq!(ttl(Setting::Text("adaptive".to_owned())).unwrap(), Ttl::Adaptive);
    let wrong = refused(ttl(Setting::Text("soon".to_owned())), idiom);
    assert_eq!(wrong, "ttl: must be a number of milliseconds or 'adaptive', not \"soon\"");
    assert!(ttl(Setting::Number(f64::INFINITY)).is_err() && ttl(Setting::Number(f64::NAN)).is_err());
}

/// Options of a lock are checked again with the lock; the time of a single call, such as its `wait`, is not.
#[test]
fn a_time_has_ten_years_at_most() {
    let ten_years = 10.0 * 365.0 * 86_400.0;
    for (idiom, unit, name) in [(Idiom::SnakeSeconds, 1.0, "seconds"), (Idiom::CamelMillis, 1000.0, "milliseconds")] {
        let time = |number: f64| idiom.duration("wait", &Setting::Number(number));
        assert_eq!(time(ten_years * unit).unwrap(), Duration::from_secs(10 * 365 * 86_400));
        for longer in [ten_years * unit + 1.0, 1e15, 1e300] {
            assert_eq!(refused(time(longer), idiom), format!("wait: must be at most 10 years, not {longer} {name}"));
        }
        let endless = "wait: must be at most 10 years, not without end; leave it out for no limit";
        assert_eq!(refused(time(f64::INFINITY), idiom), endless);
    }
}

/// All options, parsed from the error message for an unknown option.
fn listed<T>(result: Result<T, LockError>) -> Vec<String> {
    let refusal = refused(result, Idiom::SnakeSeconds);
    let (_, list) = refusal.split_once("only ").unwrap();
    list.split(", ").map(str::to_owned).collect()
}

/// Sets one option at a time to the first valid value that is not its default, and returns the output of `set`.
fn each_alone(names: &[String], set: impl Fn(Vec<(String, Setting)>) -> Result<String, LockError>) -> Vec<String> {
    let default = set(Vec::new()).unwrap();
    let words = ["token", "redisson"].map(|word| Setting::Text(word.to_owned()));
    let values = [Setting::Number(7.0), Setting::Flag(true), Setting::Flag(false)].into_iter().chain(words);
    let alone = |name: &String| {
        let mut taken = values.clone().filter_map(|value| set(vec![(name.clone(), value)]).ok());
        taken.find(|shown| *shown != default).unwrap_or_else(|| panic!("{name} sets nothing"))
    };
    names.iter().map(alone).collect()
}

#[test]
fn each_option_sets_something_of_its_own() {
    let idiom = Idiom::SnakeSeconds;
    let none = || options(&[("none", Setting::Flag(true))]);
    let of_clients = listed(idiom.config([], none()));
    let clients = each_alone(&of_clients, |options| {
        let config = idiom.config([], options)?;
        // `Debug` of a configuration does not show these.
        Ok(format!("{config:?} {:?} {:?} {:?}", config.username, config.password, config.tls))
    });
    let of_locks = listed(idiom.lock_options(none()));
    let locks = each_alone(&of_locks, |options| Ok(format!("{:?}", idiom.lock_options(options)?)));
    for (names, shown) in [(of_clients, clients), (of_locks, locks)] {
        for (index, one) in shown.iter().enumerate() {
            let first = shown.iter().position(|other| other == one);
            assert_eq!(first, Some(index), "{} sets the same as another option", names[index]);
        }
    }
}

fn pending(call: Result<Call, LockError>) -> u64 {
    let Started::Pending(id) = call.unwrap() else { panic!("there is no reactor") };
    id
}

#[test]
fn calls_end_in_the_queue_of_their_host() {
    let (wake, woken) = channel();
    let calls = Calls::new(move || wake.send(()).unwrap());
    let (sink, events) = Events::queue();
    events.set_verbose(true);
    let client = Client::with_events(Config::new(["memory://host-calls"]), sink).unwrap();
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let end = |id: u64| {
        woken.recv().unwrap();
        let mut ended = calls.drain().unwrap();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0, id);
        ended.remove(0).1
    };
    let happened = || pending(calls.start(Operation::Events(&events)));
    let acquire = Operation::Acquire(&lock, lock.request(Owner::Fresh));
    let Ok(Value::Lease(lease)) = end(pending(calls.start(acquire))) else { panic!("no lease") };
    assert!(matches!(end(pending(calls.start(Operation::Locked(&lock)))), Ok(Value::Flag(true))));
    let Ok(Value::Events(seen)) = end(happened()) else { panic!("no events") };
    assert_eq!(seen[0].kind(), "acquired");
    let in_vain = Operation::Lost(&lease, Some(Duration::ZERO));
    assert!(matches!(end(pending(calls.start(in_vain))), Ok(Value::Lost(None))));
    let lost = pending(calls.start(Operation::Lost(&lease, None)));
    pending(calls.start(Operation::ReleaseNewest(&lock, Owner::Fresh)));
    let mut ended = Vec::new();
    while ended.len() < 2 {
        woken.recv().unwrap();
        ended.extend(calls.drain().unwrap());
    }
    let of_lost = ended.into_iter().find(|(id, _)| *id == lost).unwrap();
    assert!(matches!(of_lost.1, Ok(Value::Lost(None))));
    drop((lease, lock, client));
    // First the `released` events, then the end of the queue.
    loop {
        let Ok(Value::Events(seen)) = end(happened()) else { panic!("no events") };
        if seen.is_empty() {
            break;
        }
    }
}

#[test]
fn a_thread_waits_for_results_until_the_event_loop_ends() {
    for calls in [Calls::watched(), Calls::waited_for()].map(Arc::new) {
        let client = Client::new(Config::new(["memory://waited-for"])).unwrap();
        let lock = client.lock("x", LockOptions::default()).unwrap();
        let (seen, ended) = channel();
        let watched = calls.clone();
        let thread = thread::spawn(move || {
            while watched.wait() {
                watched.drain().unwrap().into_iter().for_each(|(id, _)| seen.send(id).unwrap());
            }
        });
        for _ in 0..3 {
            let id = pending(calls.start(Operation::Locked(&lock)));
            assert_eq!(ended.recv().unwrap(), id);
        }
        calls.abandon_all();
        thread.join().unwrap();
    }
}
