//! Runs the simulation over a range of seeds: `sim SEEDS [FROM]`, or shows one: `sim --show SEED`.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "--show" {
        let seed = arguments[1].parse().unwrap();
        println!("{}", redlock_tests::sim::plan::Plan::new(seed));
        let report = redlock_tests::sim::run_mutant(None, seed, true);
        for line in &report.lines {
            println!("{line}");
        }
        println!("{:#?}\n{:?} events {} digest {:x}", report.violations, report.counts, report.events, report.digest);
        return;
    }
    let (count, from): (u64, u64) = (arguments[0].parse().unwrap(), arguments.get(1).map_or(0, |f| f.parse().unwrap()));
    let mut events = 0;
    for seed in from..from + count {
        let started = std::time::Instant::now();
        let report = redlock_tests::sim::run_mutant(None, seed, false);
        events += report.events;
        if let Some((time, what)) = report.violations.first() {
            println!(
                "seed {seed} {:?}: {:.3} {what}",
                redlock_tests::sim::plan::Plan::new(seed).class,
                *time as f64 / 1e9
            );
        }
        if started.elapsed().as_secs() > 2 {
            println!("seed {seed} took {:?}, {} events", started.elapsed(), report.events);
        }
    }
    println!("{events} events");
}
