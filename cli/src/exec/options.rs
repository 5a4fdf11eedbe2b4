//! The options of `redlock exec`, in the words of flock(1) and timeout(1), and the rules that they make.

use std::{ffi::OsString, path::Path, time::Duration};

use redlock::{Client, Config, Lock, LockError, LockOptions, Ttl};

use super::{
    sharing::Sharing,
    signals,
    supervision::{Rules, Warning},
};
use crate::duration;

/// A shorter lease leaves no time between a renewal that is late and the deadline.
const MIN_LEASE: Duration = Duration::from_secs(2);
/// The default of `--kill-after`; a quarter of the lease or of `--max-hold` if that is less.
const KILL_AFTER: Duration = Duration::from_secs(5);
/// The least time between SIGKILL and the deadline, in which the kernel ends the command.
const MIN_MARGIN: Duration = Duration::from_millis(250);

/// The most bytes of a command's name that others see.
const MOST_APP_BYTES: usize = 64;

/// Run a command while this machine holds a lock
///
/// In an outage the command gets --signal some seconds before the deadline of the lease, and SIGKILL just before it: it is
/// dead while the lock is still held. If others delete, take or release the lock, the command is ended as soon as a reply
/// tells of it. Until then only the fencing token in `REDLOCK_TOKEN` protects the data.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: the command's own, or 128+n if signal n ended it; 75 (or -E) somebody else holds the lock; 79 it was lost, \
and the command was ended or succeeded; 126 the command is not executable; 127 it was not found; 69 too few nodes \
answered; 77 refused by a node; 65 the key is no lock; 64 usage; 70 internal error.

Examples:
  redlock exec nightly -- ./report.sh
  redlock exec migrate --wait 10m -- alembic upgrade head
  redlock exec tick -n -E 0 --min-hold 50 -- ./tick.sh
  redlock exec gpu --limit 4 -- ./train.sh")]
pub(crate) struct ExecOptions {
    /// The name of the lock
    pub(super) name: String,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "line", value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Run this line by `$SHELL -c` in place of a command
    #[arg(short = 'c', long = "command", value_name = "STRING", conflicts_with = "command")]
    pub(super) line: Option<OsString>,
    /// Fail at once if somebody else holds the lock
    #[arg(short = 'n', long, conflicts_with = "wait")]
    no_wait: bool,
    /// How long to wait for the lock; 0 is --no-wait [default: without limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    sharing: Sharing,
    /// The exit code if the lock was not obtained; 0 suits cron
    #[arg(short = 'E', long, value_name = "N", default_value_t = 75)]
    pub(super) conflict_exit_code: u8,
    /// A lease of this length that is never renewed; the command must be shorter
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with_all = ["watchdog", "max_hold"])]
    ttl: Option<Duration>,
    /// The length of the renewed lease. A longer one gives more time in an outage, and others get the lock of a dead
    /// machine later [default: 30s, or a shorter --max-ttl on a quorum]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    watchdog: Option<Duration>,
    /// Keep the lock for at least this time, even if the command ends earlier: once a tick in a fleet whose clocks differ
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "owner")]
    pub(super) min_hold: Option<Duration>,
    /// End the command after this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    max_hold: Option<Duration>,
    /// The signal that ends the command when the lock is about to be lost, or was lost
    #[arg(short, long, value_name = "SIGNAL", value_parser = signals::parse, default_value = "TERM")]
    signal: i32,
    /// The time from that signal to SIGKILL, at most a quarter of the lease [default: 5s, or a quarter of the lease or of
    /// --max-hold if that is less]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    kill_after: Option<Duration>,
    /// A signal for when the lease was not renewed for two thirds of its length, such as USR1 to save work
    #[arg(long, value_name = "SIGNAL", value_parser = signals::parse)]
    warn_signal: Option<i32>,
    /// What a loss of the lock does to the command
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLoss::Terminate)]
    on_loss: OnLoss,
    /// An explicit owner, who may hold the lock several times at once; the command finds it in its environment
    #[arg(long, value_name = "TEXT")]
    pub(super) owner: Option<String>,
    /// What redlock ls shows as the program that holds the lock [default: the name of the command]
    #[arg(long, value_name = "TEXT", env = "REDLOCK_APP")]
    label: Option<String>,
    /// Keep the command in the process group of redlock, as timeout --foreground does; signals go to the command alone
    #[arg(long)]
    pub(super) foreground: bool,
}

/// What a loss of the lock does to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnLoss {
    /// The command is ended
    Terminate,
    /// The command goes on; the exit code tells of the loss
    Ignore,
}

/// An option that cannot be used as it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) option: &'static str,
    pub(super) detail: String,
}

impl ExecOptions {
    /// The length of the lease. `watchdog`: that of the client.
    pub(super) fn lease(&self, watchdog: Duration) -> Duration {
        self.ttl.unwrap_or(watchdog)
    }

    /// Sets the options of the client.
    pub(super) fn configure(&self, config: &mut Config) {
        if let Some(watchdog) = self.watchdog {
            config.watchdog = watchdog;
        }
        config.app = Some(self.app());
    }

    /// What others see as the program: the label or the command's name. Never its arguments, which may be secrets.
    fn app(&self) -> String {
        if let Some(label) = self.label.as_ref().filter(|label| !label.is_empty()) {
            return label.clone();
        }
        let command = self.command.first().map(Path::new).and_then(Path::file_name);
        let mut name = command.map_or_else(|| "redlock".to_owned(), |name| name.to_string_lossy().into_owned());
        while name.len() > MOST_APP_BYTES {
            name.pop();
        }
        name
    }

    /// The lock that these options describe.
    pub(super) fn lock(&self, client: &Client) -> Result<Lock, LockError> {
        self.sharing.lock(client, &self.name, self.lock_options())
    }

    /// The options of the lock. `max_hold` is not among them: the command is ended in time, and the lock is released
    /// after it.
    fn lock_options(&self) -> LockOptions {
        let mut options = LockOptions::default();
        options.ttl = self.ttl.map_or(Ttl::Watchdog, Ttl::Fixed);
        options.wait = if self.no_wait { Some(Duration::ZERO) } else { self.wait };
        options.owner.clone_from(&self.owner);
        options.min_hold = self.min_hold;
        options
    }

    /// The rules for the command of a client with this configuration.
    pub(super) fn rules(&self, config: &Config, job_control: bool, shares_keys: bool) -> Result<Rules, Refused> {
        let lease = self.lease(config.watchdog);
        let named = if self.ttl.is_some() { "--ttl" } else { "--watchdog" };
        if lease < MIN_LEASE {
            // No other option shortens the default lease.
            let option = if self.ttl.or(self.watchdog).is_none() { "--max-ttl" } else { named };
            let detail =
                format!("must be at least {MIN_LEASE:?}, so that the command can be ended before the deadline");
            return Err(Refused { option, detail });
        }
        let quarter = lease / 4;
        let of_max_hold = self.max_hold.map_or(quarter, |max_hold| max_hold / 4);
        let kill_after = self.kill_after.unwrap_or(KILL_AFTER.min(quarter).min(of_max_hold));
        if kill_after > quarter {
            let detail = format!("must be at most a quarter of the lease ({quarter:?}); a longer {named} allows more");
            return Err(Refused { option: "--kill-after", detail });
        }
        if let Some(max_hold) = self.max_hold {
            let least = kill_after.max(MIN_MARGIN);
            if max_hold <= least {
                let of = if least == kill_after { "--kill-after" } else { "the time that SIGKILL needs" };
                return Err(Refused { option: "--max-hold", detail: format!("must be longer than {of} ({least:?})") });
            }
        }
        if let (Some(min_hold), Some(max_hold)) = (self.min_hold, self.max_hold)
            && min_hold > max_hold
        {
            let detail = format!("must be at most --max-hold ({max_hold:?}), which ends the command");
            return Err(Refused { option: "--min-hold", detail });
        }
        Ok(Rules {
            signal: self.signal,
            kill_after,
            margin: MIN_MARGIN.max(lease / 100),
            warning: self.warn_signal.map(|signal| Warning { signal, left: at_risk(lease, config.drift) }),
            ignore_loss: self.on_loss == OnLoss::Ignore,
            max_hold: self.max_hold,
            renewed: self.ttl.is_none(),
            job_control,
            shares_keys,
        })
    }
}

/// The time from the moment at which a lease is at risk, two thirds of its ttl after the last renewal, to its deadline.
fn at_risk(lease: Duration, drift: f64) -> Duration {
    lease.mul_f64((1.0 - drift - 2.0 / 3.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: ExecOptions,
    }

    fn parsed(line: &str) -> Result<ExecOptions, String> {
        let words = ["redlock"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.options).map_err(|error| error.to_string())
    }

    fn rules(line: &str) -> Result<Rules, Refused> {
        let options = parsed(line).expect("a valid line");
        let mut config = Config::new(["redis://a"]);
        options.configure(&mut config);
        options.rules(&config, false, false)
    }

    #[test]
    fn the_command_follows_the_name_with_or_without_dashes() {
        for line in ["nightly -- ls -n -l", "nightly ls -n -l", "-w 5 nightly -- ls -n -l", "nightly -w 5 -- ls -n -l"]
        {
            let options = parsed(line).expect(line);
            assert_eq!(
                (options.name.as_str(), &options.command),
                ("nightly", &vec!["ls".into(), "-n".into(), "-l".into()])
            );
        }
        let options = parsed("nightly -n -E 0 -c true").expect("a line for the shell");
        assert_eq!((options.line, options.conflict_exit_code), (Some("true".into()), 0));
    }

    #[test]
    fn what_contradicts_is_refused() {
        for line in [
            "nightly",
            "nightly -c x -- y",
            "x -n -w 5 -- y",
            "x --ttl 5 --watchdog 5 -- y",
            "x --ttl 5 --max-hold 60 -- y",
            "x -E 256 -- y",
            "x -s NONE -- y",
            "x --min-hold 5 --owner o -- y",
            "x --shared --exclusive -- y",
            "x --shared --min-hold 5 -- y",
            "x --shared --fair -- y",
            "x --exclusive --owner o -- y",
            "x --limit 0 -- y",
            "x --limit 65537 -- y",
            "x --limit -1 -- y",
            "x --limit two -- y",
            "x --limit 2 --shared -- y",
            "x --limit 2 --fair -- y",
            "x --limit 2 --min-hold 5 -- y",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn others_see_the_label_or_the_name_of_the_command() {
        let app = |line: &str| parsed(line).expect("a valid line").app();
        assert_eq!(app("x -- /usr/bin/deploy --password secret"), "deploy");
        assert_eq!(app("x --label nightly -- y"), "nightly");
        assert_eq!(app("x -c true"), "redlock");
        assert_eq!(app(&format!("x -- {}", "é".repeat(40))), "é".repeat(32));
    }

    #[test]
    fn the_times_follow_from_the_lease() {
        let of = |line: &str| rules(line).map(|rules| (rules.kill_after.as_millis(), rules.margin.as_millis()));
        assert_eq!(of("x -- y"), Ok((5000, 300)));
        assert_eq!(of("x --watchdog 2s -- y"), Ok((500, 250)));
        assert_eq!(of("x --ttl 60 -- y"), Ok((5000, 600)));
        assert_eq!(of("x -k 7.5 -- y"), Ok((7500, 300)));
        assert_eq!(of("x --max-hold 12s -- y"), Ok((3000, 300)));
        assert_eq!(of("x --max-hold 2s -- y"), Ok((500, 300)));
        assert_eq!(of("x --max-hold 60 -- y"), Ok((5000, 300)));
        assert_eq!(of("x --max-hold 6 -k 5 -- y"), Ok((5000, 300)));
    }

    #[test]
    fn times_that_cannot_be_kept_are_refused() {
        let option = |line: &str| rules(line).map(|_| ()).map_err(|refused| refused.option);
        assert_eq!(option("x --watchdog 1999ms -- y"), Err("--watchdog"));
        assert_eq!(option("x --ttl 1 -- y"), Err("--ttl"));
        assert_eq!(option("x -k 8 -- y"), Err("--kill-after"));
        assert_eq!(option("x --max-hold 5 -k 5 -- y"), Err("--max-hold"));
        assert_eq!(option("x --max-hold 6 -k 5 -- y"), Ok(()));
        assert_eq!(option("x --max-hold 250ms -- y"), Err("--max-hold"));
        assert_eq!(option("x --max-hold 251ms -- y"), Ok(()));
        assert_eq!(option("x --min-hold 61 --max-hold 60 -- y"), Err("--min-hold"));
        assert_eq!(option("x --min-hold 60 --max-hold 60 -- y"), Ok(()));
    }

    #[test]
    fn a_lease_is_at_risk_seven_seconds_before_its_deadline() {
        let warning = rules("x --warn-signal USR1 -- y").expect("rules").warning.expect("a warning");
        assert_eq!((warning.signal, warning.left.as_millis()), (libc::SIGUSR1, 7000));
        assert_eq!(at_risk(Duration::from_secs(30), 0.4), Duration::ZERO);
    }
}
