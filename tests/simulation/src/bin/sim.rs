//! Runs the simulation with many seeds, or shows the run of one.

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use clap::Parser;
use redlock::Mutant;
use redlock_servers::locked;
use redlock_simulation::{
    hunt::{hunt, replay},
    plan::Plan,
    run_mutant,
};

/// Deterministic simulation of the lock: each seed is a run of its own, with its own faults.
#[derive(Parser)]
struct Arguments {
    /// The number of seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Continues where the last run with this file stopped, and writes its progress there.
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Shows all events of one seed.
    #[arg(long)]
    show: Option<u64>,
    /// Switches on a mutant, a known fault of other libraries, by its name.
    #[arg(long)]
    mutant: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mutant = arguments.mutant.map(|name| {
        let known = Mutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name);
        known.unwrap_or_else(|| panic!("no such fault; known are {:?}", Mutant::ALL))
    });
    if let Some(seed) = arguments.show {
        return show(mutant, seed);
    }
    let noted = arguments.resume.as_ref().and_then(|file| fs::read_to_string(file).ok());
    let mut from = noted.and_then(|text| text.trim().parse().ok()).unwrap_or(arguments.from);
    let end = arguments.from + arguments.seeds;
    let (started, first, mut broken, mut events) = (Instant::now(), from, 0, 0);
    let told = Mutex::new(Instant::now());
    while from < end {
        // Runs a stretch of seeds at a time, so that a run can be stopped and resumed.
        let stretch = (end - from).min(1000);
        let bag = hunt(mutant, from, stretch, usize::MAX, &|seed, _| {
            let mut told = locked(&told);
            if told.elapsed() > Duration::from_secs(30) {
                *told = Instant::now();
                println!("at seed {seed} after {:.0?}", started.elapsed());
            }
        });
        for (seed, what) in &bag.broken {
            println!("seed {seed}: {what}\n  {}", replay(*seed));
        }
        broken += bag.broken.len();
        events += bag.events;
        from += stretch;
        if let Some(file) = &arguments.resume
            && let Err(error) = fs::write(file, from.to_string())
        {
            println!("{}: {error}", file.display());
        }
    }
    println!(
        "{} seeds from {first}, {events} events in {:.0?}: {broken} broke something",
        from - first,
        started.elapsed()
    );
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(mutant: Option<Mutant>, seed: u64) -> ExitCode {
    println!("{}", Plan::new(seed));
    let report = run_mutant(mutant, seed, true);
    report.lines.iter().for_each(|line| println!("{line}"));
    println!("{} events, digest {:016x}, {:?}", report.events, report.digest, report.counts);
    for (time, what) in &report.violations {
        println!("BROKEN at {:.6}: {what}", *time as f64 / 1e9);
    }
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
