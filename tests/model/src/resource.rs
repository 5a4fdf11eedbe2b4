//! How a resource must check tokens. Holders read a value and write it back incremented, in every order in which their
//! steps can interleave. An older holder may still run, since a lock cannot stop it. A schedule loses an update if the
//! value ends below the number of accepted writes.

/// On which accesses the resource compares the token with the largest one it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Never,
    /// On writes; an equal token passes.
    Writes,
    /// On writes; only a larger token passes.
    WritesStrictly,
    /// On every access, reads included. The first access of a tenure shuts out older tenures.
    EveryAccess,
}

/// The number of holders, whose tokens count from 1, and of increments that each makes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub check: Check,
    pub holders: usize,
    pub increments: usize,
}

/// The result of all schedules.
#[derive(Debug, Default)]
pub struct Schedules {
    pub all: usize,
    pub losing: usize,
    /// The first schedule that loses an update.
    pub trace: Vec<String>,
}

#[derive(Clone)]
struct Run {
    value: u64,
    /// The largest token seen.
    largest: usize,
    accepted: u64,
    /// For each holder, the number of its steps and the value that it read last; `None` if the read was refused.
    steps: Vec<usize>,
    read: Vec<Option<u64>>,
    trace: Vec<String>,
}

/// Runs all schedules.
pub fn schedules(config: &Config) -> Schedules {
    let mut found = Schedules::default();
    let run = Run {
        value: 0,
        largest: 0,
        accepted: 0,
        steps: vec![0; config.holders],
        read: vec![None; config.holders],
        trace: Vec::new(),
    };
    go_on(config, &run, &mut found);
    found
}

fn go_on(config: &Config, run: &Run, found: &mut Schedules) {
    let mut over = true;
    for holder in (0..config.holders).filter(|holder| run.steps[*holder] < 2 * config.increments) {
        over = false;
        let mut next = run.clone();
        step(config, &mut next, holder);
        go_on(config, &next, found);
    }
    if over {
        found.all += 1;
        if run.value != run.accepted {
            found.losing += 1;
            if found.trace.is_empty() {
                found.trace.clone_from(&run.trace);
                found.trace.push(format!("{} writes were accepted and the value is {}", run.accepted, run.value));
            }
        }
    }
}

fn step(config: &Config, run: &mut Run, holder: usize) {
    let token = holder + 1;
    let writes = run.steps[holder] % 2 == 1;
    run.steps[holder] += 1;
    let passes = match config.check {
        Check::Never => true,
        Check::Writes => !writes || token >= run.largest,
        Check::WritesStrictly => !writes || token > run.largest,
        Check::EveryAccess => token >= run.largest,
    };
    if passes && (writes || config.check == Check::EveryAccess) {
        run.largest = run.largest.max(token);
    }
    let name = ["A", "B", "C", "D"][holder];
    let line = if !writes {
        run.read[holder] = passes.then_some(run.value);
        if passes { format!("{name} ({token}) reads {}", run.value) } else { format!("{name} ({token}) may not read") }
    } else if let Some(read) = run.read[holder].filter(|_| passes) {
        run.value = read + 1;
        run.accepted += 1;
        format!("{name} ({token}) writes {}", run.value)
    } else {
        format!("{name} ({token}) may not write")
    };
    run.trace.push(line);
}
