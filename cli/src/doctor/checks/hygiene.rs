//! Whether a server was slow lately, or is about to refuse connections.

use std::time::Duration;

use redlock::examination::ServerInfo;

use crate::doctor::{
    facts::{Answering, Facts},
    finding::Report,
};

/// Older events are over.
const LATELY: Duration = Duration::from_secs(3600);
/// A server that does nothing else for this part of `reply_timeout` is slow.
const SLOW: u32 = 10;
/// So many commands above the limit of the slow log (10 ms by default) are a habit.
const MANY: usize = 10;
/// The share of `maxclients` from which connections are short.
const FULL: f64 = 0.8;

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for one in facts.masters() {
        slow(facts, &mut report, &one);
        match one.info() {
            Some(info) => connections(&mut report, &one, info),
            None => report.skip(one.address(), "INFO is not told"),
        }
    }
    report
}

fn slow(facts: &Facts, report: &mut Report, one: &Answering<'_>) {
    let limit = facts.settings.reply_timeout / SLOW;
    let Some(now) = one.state.clocks.as_ref().ok().and_then(|clocks| clocks.last()).map(|clock| clock.time) else {
        return;
    };
    let is_recent = |at: Duration| at + LATELY >= now;
    match &one.state.latency {
        Ok(spikes) => {
            for spike in spikes.iter().filter(|spike| is_recent(spike.at) && spike.latest > limit) {
                report.warning(
                    one.address(),
                    format!("{} took {:?} in the last hour", spike.event, spike.latest),
                    "See LATENCY DOCTOR; nothing is answered meanwhile.",
                );
            }
        }
        Err(why) => report.skip(one.address(), &format!("LATENCY LATEST is not told: {}", why.cause)),
    }
    let commands = match &one.state.slow {
        Ok(commands) => commands,
        Err(why) => return report.skip(one.address(), &format!("SLOWLOG is not told: {}", why.cause)),
    };
    let recent: Vec<_> = commands.iter().filter(|command| is_recent(command.at)).collect();
    let Some(slowest) = recent.iter().max_by_key(|command| command.took) else { return };
    if slowest.took > limit || recent.len() >= MANY {
        report.warning(
            one.address(),
            format!(
                "{} slow commands in the last hour; the slowest, {}, took {:.0?}",
                recent.len(),
                slowest.name,
                slowest.took
            ),
            "See SLOWLOG GET; nothing is answered meanwhile. Give locks a server of their own.",
        );
    } else {
        report.remark(format!("{}: {} slow commands in the last hour", one.address(), recent.len()));
    }
}

fn connections(report: &mut Report, one: &Answering<'_>, info: &ServerInfo) {
    let most = info.max_clients.or_else(|| one.config().and_then(|config| config.max_clients));
    if let (Some(connected), Some(most)) = (info.connected_clients, most.filter(|most| *most > 0))
        && connected as f64 >= most as f64 * FULL
    {
        report.warning(
            one.address(),
            format!("{connected} of {most} connections are used (maxclients)"),
            "Raise maxclients, or use fewer clients: one for each process is enough.",
        );
    }
    if let Some(rejected) = info.rejected_connections.filter(|rejected| *rejected > 0) {
        report.warning(
            one.address(),
            format!("it has refused {rejected} connections since it started (maxclients)"),
            "Raise maxclients; CONFIG RESETSTAT sets the number to zero.",
        );
    }
    if let Some(blocked) = info.blocked_clients.filter(|blocked| *blocked > 0) {
        report.remark(format!("{}: {blocked} clients wait in blocking commands", one.address()));
    }
}

#[cfg(test)]
mod tests {
    use redlock::examination::{SlowCommand, Spike};

    use super::*;
    use crate::doctor::{
        checks::made::{Made, NOW, severities},
        finding::Severity::Warning,
    };

    #[test]
    fn connections_that_run_out_are_named() {
        for (info, expected) in [
            ("connected_clients:79\nmaxclients:100", &[][..]),
            ("connected_clients:80\nmaxclients:100", &[Warning]),
            ("connected_clients:1\nmaxclients:100\nrejected_connections:3", &[Warning]),
            ("connected_clients:9\nblocked_clients:5", &[]),
        ] {
            assert_eq!(severities(&check(&Made::one().info(0, info).facts)), expected, "{info}");
        }
    }

    #[test]
    fn slow_events_of_the_last_hour_are_named() {
        let ago = |seconds| NOW.saturating_sub(Duration::from_secs(seconds));
        for (seconds, millis, expected) in [(10, 300, &[Warning][..]), (10, 150, &[]), (4000, 300, &[])] {
            let mut made = Made::one();
            let latest = Duration::from_millis(millis);
            made.state(0).latency = Ok(vec![Spike { event: "fork".to_owned(), at: ago(seconds), latest }]);
            assert_eq!(severities(&check(&made.facts)), expected, "{seconds} {millis}");
        }
        for (count, millis, expected) in [(1, 300, &[Warning][..]), (9, 20, &[]), (10, 20, &[Warning])] {
            let mut made = Made::one();
            let took = Duration::from_millis(millis);
            let one = SlowCommand { name: "KEYS".to_owned(), at: ago(10), took };
            made.state(0).slow = Ok(vec![one; count]);
            assert_eq!(severities(&check(&made.facts)), expected, "{count} {millis}");
        }
    }
}
