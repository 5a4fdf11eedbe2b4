//! Runs the configurations of the model check, two at a time. Prints the result of each, with the shortest trace of
//! those that break. Without arguments it runs those that take seconds; `--all` adds the large ones; any other argument
//! selects a configuration by name.

use std::{
    env,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use redlock_model::{
    Result,
    checker::{Outcome, Verdict},
    configurations::{Configuration, Expected, all},
    run,
};

/// Configurations with more states than this run only with `--all`.
const SMALL: usize = 1_000_000;
/// The largest number of states of a search. More would take too much memory.
const LIMIT: usize = 100_000_000;
/// The number of concurrent searches.
const WORKERS: usize = 2;

/// A number with its thousands separated by spaces.
fn spaced(number: usize) -> String {
    let digits = number.to_string();
    let head = (digits.len() - 1) % 3 + 1;
    let (first, rest) = digits.split_at(head);
    rest.as_bytes().chunks(3).fold(first.to_owned(), |text, chunk| text + " " + &String::from_utf8_lossy(chunk))
}

/// Compares the result with the expected one. Returns the verdict in words, the trace, and the mismatch, if any.
fn judge(expected: Expected, result: &Result) -> (String, Vec<String>, Option<String>) {
    let outcome = match result {
        Result::Scheduled(schedules) => {
            let verdict = format!("{} of {} schedules lose an update", schedules.losing, schedules.all);
            let right =
                matches!(expected, Expected::Loses(losing, all) if (losing, all) == (schedules.losing, schedules.all));
            return (verdict, schedules.trace.clone(), (!right).then(|| format!("expected {expected:?}")));
        }
        Result::Searched(outcome) => outcome,
    };
    let Outcome { verdict, states, depth, missing } = outcome;
    let counted = format!("{} states, depth {depth}", spaced(*states));
    let wrong = match (expected, verdict) {
        (Expected::Holds(_), Verdict::Holds) if *missing != 0 => Some(format!("it never met events {missing:#b}")),
        (Expected::Holds(wanted), Verdict::Holds) if wanted == *states => None,
        (Expected::Breaks(wanted, steps), Verdict::Broken { violation, trace })
            if violation.starts_with(wanted) && trace.len() == steps =>
        {
            None
        }
        (Expected::Unfinished(wanted), Verdict::Unfinished) if *states >= wanted => None,
        _ => Some(format!("expected {expected:?}")),
    };
    match verdict {
        Verdict::Holds => (format!("holds: {counted}"), Vec::new(), wrong),
        Verdict::Unfinished => (format!("no violation within {counted}, not exhausted"), Vec::new(), wrong),
        Verdict::Broken { violation, trace } => {
            (format!("breaks after {} steps ({counted}): {violation}", trace.len()), trace.clone(), wrong)
        }
    }
}

fn is_small(configuration: &Configuration) -> bool {
    match configuration.expected {
        Expected::Holds(states) | Expected::Unfinished(states) => states <= SMALL,
        Expected::Breaks(..) | Expected::Loses(..) => true,
    }
}

fn main() -> ExitCode {
    // Ignore an option that cargo passes to test harnesses.
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--quiet").collect();
    let every = arguments.iter().any(|argument| argument == "--all");
    let names: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let configurations = all();
    let wanted = |configuration: &&Configuration| {
        if names.is_empty() {
            every || is_small(configuration)
        } else {
            names.iter().any(|name| *name == configuration.name)
        }
    };
    let chosen: Vec<&Configuration> = configurations.iter().filter(wanted).collect();
    if chosen.is_empty() {
        println!("no such configuration");
        return ExitCode::FAILURE;
    }
    // The largest searches start first, so that no worker ends up alone with one.
    let mut order: Vec<&&Configuration> = chosen.iter().collect();
    order.sort_by_key(|configuration| match configuration.expected {
        Expected::Holds(states) | Expected::Unfinished(states) => usize::MAX - states,
        _ => usize::MAX,
    });
    let (next, failures, start) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let work = || {
        while let Some(configuration) = order.get(next.fetch_add(1, Relaxed)) {
            let begin = Instant::now();
            let limit = if let Expected::Unfinished(states) = configuration.expected { states } else { LIMIT };
            let result = run(configuration, limit);
            let (verdict, trace, wrong) = judge(configuration.expected, &result);
            let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
            let Configuration { name, about, nodes, .. } = configuration;
            let nodes = if *nodes == 0 { String::new() } else { format!("N={nodes}: ") };
            println!("{name:5} {nodes}{about}\n      {verdict} [{:.1} s]", begin.elapsed().as_secs_f64());
            trace.iter().enumerate().for_each(|(step, line)| println!("      {:2}  {line}", step + 1));
            if let Some(wrong) = wrong {
                println!("      WRONG: {wrong}");
                failures.push(*name);
            }
        }
    };
    thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} configurations in {:.0} s", chosen.len(), start.elapsed().as_secs_f64());
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("not as expected: {}", failures.join(" "));
    ExitCode::FAILURE
}
