//! `redlock top`: nodes, locks and clients on the terminal, as they change.

mod details;
mod input;
mod looks;
#[cfg(test)]
pub(super) mod made;
mod paint;
mod render;
mod screen;
mod state;

use std::{
    env,
    io::{IsTerminal, stdout},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use self::{
    looks::{Ask, Report},
    paint::Paint,
    screen::Screen,
    state::{Demand, State},
};
use super::{LOOK_LIMIT, snapshot::Source};
use crate::{block::block, connect::ConnectOptions, duration, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Show nodes, locks and clients on the terminal, as they change
///
/// By default the locks that somebody waits for; the key a and --scan find all. A pattern without wildcards is a name,
/// whose lock is always shown. It writes nothing on the servers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: Up Down j k PgUp PgDn Home End move; Enter shows the holders of a lock; / filters; s changes the order; a finds
all locks; c shows the clients; r looks now; p or Space pauses; ? helps; q, Esc and Ctrl-C quit.

Without a terminal: redlock watch --json, redlock ls --json.

Examples:
  redlock top
  redlock top 'order:*' --scan --every 1s")]
pub(crate) struct TopOptions {
    /// Only names that match this pattern: * ? [a-z]
    pattern: Option<String>,
    /// The time between two looks
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::pause)]
    every: Duration,
    /// Walk through all keys of the servers first
    #[arg(long)]
    scan: bool,
}

pub(crate) fn run(options: &TopOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    if talk.json() || !stdout().is_terminal() || is_dumb {
        return Err(Failure::usage(
            "top draws on a terminal, and stdout is none, or TERM=dumb. Use redlock watch --json for changes, redlock ls \
             --json for a list.",
        ));
    }
    let (report, reports) = channel();
    let warnings = report.clone();
    let limit = |config: &mut redlock::Config| config.reply_timeout = LOOK_LIMIT;
    // Fails only if the view has ended.
    let client = servers.client_warning(limit, move |warning| _ = warnings.send(Report::Warned(warning.to_owned())))?;
    let mut source = Source::new(client.clone(), options.pattern.as_deref());
    // At the beginning, the options may be wrong.
    block(source.locks())?;
    if options.scan {
        block(source.scan(None, |_, _| ()))?;
    }
    let shown = show(source, options.every, report, &reports, Paint { colors: talk.colors() });
    client.close_blocking();
    shown.map(|()| ExitStatusCode::DONE)
}

/// Shows the view until the user or a signal ends it.
fn show(
    source: Source,
    every: Duration,
    report: Sender<Report>,
    reports: &Receiver<Report>,
    paint: Paint,
) -> Result<(), Failure> {
    #[cfg(unix)]
    looks::at_signals(report.clone())?;
    let mut screen = Screen::take()?;
    looks::at_keys(report.clone());
    let ask = looks::at_servers(source, every, report);
    let mut state = State::default();
    loop {
        if !Screen::is_taken() {
            return Err(Failure::new(ExitStatusCode::INTERNAL, "a thread of this program has panicked"));
        }
        screen.draw(|frame| render::draw(frame, &mut state, paint))?;
        let Ok(first) = reports.recv() else { return Ok(()) };
        // What came meanwhile is drawn at once.
        for report in std::iter::once(first).chain(reports.try_iter()) {
            match take(&mut state, report, &mut screen)? {
                None => {}
                Some(Demand::Quit) => return Ok(()),
                Some(Demand::Suspend) => suspend(&mut screen)?,
                // Fails only if the thread has ended, which it reports.
                Some(Demand::Look) => _ = ask.send(Ask::Look),
                Some(Demand::Scan) => _ = ask.send(Ask::Scan),
                Some(Demand::Pause(paused)) => _ = ask.send(Ask::Pause(paused)),
                Some(Demand::Open(name)) => _ = ask.send(Ask::Open(name)),
            }
        }
    }
}

/// Takes a report.
#[cfg_attr(not(unix), allow(unused_variables, clippy::unnecessary_wraps, reason = "signals need the screen"))]
fn take(state: &mut State, report: Report, screen: &mut Screen) -> Result<Option<Demand>, Failure> {
    match report {
        Report::Key(key) => return Ok(input::action(key, state.is_typing()).and_then(|action| state.act(action))),
        // The next drawing has the new size.
        Report::Resized => {}
        Report::Looked(snapshot) => state.see(*snapshot),
        Report::Details(details) => state.see_details(details),
        Report::Scanning(visited, keys, locks) => {
            state.remark = Some(format!("scanning: {visited} of {keys} keys, {locks} locks"));
        }
        Report::Scanned(scanned) => {
            state.remark = Some(match scanned {
                Ok(locks) => format!("found {locks} locks"),
                Err(why) => format!("! {why}"),
            });
        }
        Report::Warned(warning) => state.remark = Some(format!("! {warning}")),
        #[cfg(unix)]
        Report::Signal(libc::SIGTSTP) => return Ok(Some(Demand::Suspend)),
        #[cfg(unix)]
        // The shell has changed the terminal while this process was stopped.
        Report::Signal(libc::SIGCONT) => screen.without(|| ())?,
        #[cfg(unix)]
        Report::Signal(_) => return Ok(Some(Demand::Quit)),
        Report::Over(failure) => return Err(failure),
    }
    Ok(None)
}

/// Gives the terminal to the shell, until the user continues the program.
#[cfg(unix)]
fn suspend(screen: &mut Screen) -> Result<(), Failure> {
    Ok(screen.without(crate::exec::suspend)?)
}

/// There is no job control.
#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
fn suspend(_: &mut Screen) -> Result<(), Failure> {
    Ok(())
}
