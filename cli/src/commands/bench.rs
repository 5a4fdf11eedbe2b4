//! `redlock bench`: measures locks on the user's own servers.

use std::{
    io::{IsTerminal, stderr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use indicatif::ProgressBar;
use redlock::process::runtime;

use crate::{
    bench::{Measured, Names, Plan, Remark, Row, What, measure, verdict},
    block::block,
    connect::ConnectOptions,
    exit_code::ExitStatusCode,
    failure::Failure,
    table::{Table, visible},
    talk::Talk,
};

/// Measure round trips, acquires and hand-offs on the servers, and say what the times mean for the settings
///
/// It loads the servers for a few seconds. Its locks have names of their own, which begin with `redlock_bench:`. They are deleted at the
/// end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Times are in milliseconds; with --json, in seconds. Ends early with Ctrl-C, with code 130.

Example:
  redlock bench --callers 32 --seconds 8")]
pub(crate) struct BenchOptions {
    /// How many callers acquire locks of their own at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    callers: u16,
    /// How long all takes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

pub(crate) fn run(options: &BenchOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let config = servers.config()?;
    let signal = signals()?;
    let callers = usize::from(options.callers);
    let time = Duration::from_secs(options.seconds);
    let plan = Plan { config: config.clone(), callers, time, signal: signal.clone() };
    let names = Names::new(callers);
    let (one, other) = (servers.client(talk)?, servers.client(talk)?);
    let measured = measured(plan, &names, &one, &other, talk);
    // They wait for releases that are under way, also after a failure.
    other.close_blocking();
    one.close_blocking();
    let cleaner = servers.client(talk)?;
    let forgotten = block(names.forget(&cleaner));
    cleaner.close_blocking();
    let rows = measured??;
    forgotten?;
    let signal = signal.load(SeqCst);
    if signal != 0 {
        // The shells' code for a signal.
        return Ok(ExitStatusCode(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
    }
    print(&rows, &verdict(&rows, &config), talk)?;
    Ok(ExitStatusCode::DONE)
}

/// Measures in the background, where the timers are.
fn measured(
    plan: Plan,
    names: &Names,
    one: &redlock::Client,
    other: &redlock::Client,
    talk: &Talk,
) -> Result<Measured, Failure> {
    let bar = if stderr().is_terminal() && !talk.quiet() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.enable_steady_tick(Duration::from_millis(100));
    let shown = bar.clone();
    let (names, one, other) = (names.clone(), one.clone(), other.clone());
    let measuring = runtime::background().spawn(async move {
        measure(&plan, &names, &one, &other, |what| shown.set_message(format!("measuring {what}"))).await
    });
    let measured = block(async { Ok(measuring.await) });
    bar.finish_and_clear();
    measured?.map_err(|error| Failure::new(ExitStatusCode::INTERNAL, format!("the measurement ended: {error}")))
}

/// The signal that asks for the end; 0 while there is none. From now on it ends no process.
#[cfg(unix)]
fn signals() -> Result<Arc<AtomicUsize>, Failure> {
    let raised = Arc::new(AtomicUsize::new(0));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // `nohup` relies on that.
        if !crate::exec::is_ignored(signal) {
            signal_hook::flag::register_usize(signal, raised.clone(), usize::try_from(signal).unwrap_or(1))?;
        }
    }
    Ok(raised)
}

/// Where signals cannot be handled, Ctrl-C ends the process, and the servers delete the locks after some seconds.
#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
fn signals() -> Result<Arc<AtomicUsize>, Failure> {
    Ok(Arc::new(AtomicUsize::new(0)))
}

fn print(rows: &[Row], remarks: &[Remark], talk: &Talk) -> Result<(), Failure> {
    if talk.json() {
        for object in rows.iter().map(Row::json).chain(remarks.iter().map(Remark::json)) {
            talk.object(&object)?;
        }
        return Ok(());
    }
    let mut table = Table::new(vec!["WHAT", "COUNT", "PER SECOND", "P50 MS", "P99 MS", "MAX MS"]);
    for row in rows {
        let what = match &row.what {
            What::RoundTrip(node) => format!("round trip to {node}"),
            What::Pairs(1) => "acquire and release, 1 caller".to_owned(),
            What::Pairs(callers) => format!("acquire and release, {callers} callers"),
            What::HandOff => "hand-off to a waiter".to_owned(),
        };
        let rate = row.rate().map_or_else(crate::holder::dash, |rate| format!("{rate:.0}"));
        let time = |time| if row.count() > 0 { crate::bench::millis(time) } else { crate::holder::dash() };
        let times = [row.percentile(50.0), row.percentile(99.0), row.max()].map(time);
        let [p50, p99, max] = times;
        table.row(&[what, row.count().to_string(), rate, p50, p99, max]);
    }
    table.print(talk)?;
    talk.line("")?;
    for remark in remarks {
        let sign = if remark.warns { talk.marked("!", false) } else { "-".to_owned() };
        talk.line(&format!("{sign} {}", visible(&remark.text)))?;
    }
    Ok(())
}
