//! Whether each server answers in time: the address, the login, TLS, the round trip.

use std::time::Duration;

use redlock::examination::{NotTold, ServerState};

use crate::doctor::{
    facts::Facts,
    finding::{Report, Severity},
};

/// How many round trips must fit into `reply_timeout`.
const ROUND_TRIPS: u32 = 4;

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for (number, node) in facts.nodes.iter().enumerate() {
        if let Some(why) = &node.error {
            down(facts, &mut report, &node.node, why);
        }
        for sentinel in &node.sentinels {
            if let Err(why) = &sentinel.state
                && node.error.is_none()
            {
                report.warning(&sentinel.address, format!("this Sentinel does not tell: {}", why.cause), advice(why));
            }
        }
        for server in node.servers.iter().filter(|server| !server.as_replica) {
            match &server.state {
                Err(why) => down(facts, &mut report, &server.address, why),
                Ok(state) if !facts.is_up(number) && state.info.as_ref().is_ok_and(|info| info.loading) => {
                    let why = NotTold { cause: "it loads its keys".to_owned(), forbidden: false };
                    down(facts, &mut report, &server.address, &why);
                }
                Ok(state) => answers(facts, &mut report, &server.address, state),
            }
        }
    }
    report
}

/// A node that does not answer is an outage unless enough others do.
fn down(facts: &Facts, report: &mut Report, node: &str, why: &NotTold) {
    let (up, all, quorum) = (facts.up(), facts.nodes.len(), facts.settings.quorum);
    let severity = if up < quorum { Severity::Critical } else { Severity::Warning };
    let others = if all > 1 { format!(" ({up} of {all} nodes answer, {quorum} must)") } else { String::new() };
    report.add(severity, Some(node), why.cause.clone() + &others, advice(why));
}

/// What to do about a server that does not answer.
fn advice(why: &NotTold) -> &'static str {
    let has = |part: &str| why.cause.contains(part);
    if has("protocol") {
        "Check the port in --url or REDLOCK_URL, and redis:// against rediss://."
    } else if has("TLS") || has("rediss://") {
        "Match the URL (redis:// or rediss://), --ca, --cert and --key to the server."
    } else if has("NOPERM") {
        "Give this user the rights that docs/deployments.md lists."
    } else if why.forbidden {
        "Give a user and a password that the server knows, in REDLOCK_URL or by --url-file."
    } else if has("no answer") {
        "Check that the server runs, is not stopped or overloaded, and that no firewall is between."
    } else if has("loads") {
        "Wait until it has loaded them."
    } else {
        "Check that the server is up, and that --url or REDLOCK_URL names it."
    }
}

fn answers(facts: &Facts, report: &mut Report, node: &str, state: &ServerState) {
    if let Err(why) = &state.info {
        report.add(
            Severity::Unknown,
            Some(node),
            format!("does not tell INFO: {}", why.cause),
            "Give this user the right: +info.",
        );
    }
    let mut trips = state.round_trips.clone();
    trips.sort_unstable();
    let Some(median) = trips.get(trips.len() / 2).copied() else { return };
    let worst = trips.last().copied().unwrap_or_default();
    report.remark(format!("{node}: round trip {median:.1?} (median), {worst:.1?} (worst)"));
    let limit: Duration = facts.settings.reply_timeout;
    if median * ROUND_TRIPS > limit {
        report.warning(
            node,
            format!("a round trip takes {median:.1?}, and reply_timeout is {limit:?}"),
            "Move the clients closer to the servers, or raise reply_timeout above four round trips.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::checks::made::{Made, severities};

    #[test]
    fn a_node_that_is_down_is_critical_only_without_a_quorum() {
        let down = |count: usize| {
            let mut made = Made::quorum(3);
            for node in 0..count {
                made = made.down(node, "connection refused", false);
            }
            check(&made.facts)
        };
        assert_eq!(severities(&down(0)), []);
        assert_eq!(severities(&down(1)), [Severity::Warning]);
        assert_eq!(severities(&down(2)), [Severity::Critical; 2]);
        assert!(down(1).findings[0].found.contains("2 of 3 nodes answer, 2 must"));
    }

    #[test]
    fn the_advice_fits_the_cause() {
        for (cause, forbidden, part) in [
            ("connection refused", false, "is up"),
            ("no answer within 2.0s", false, "overloaded"),
            ("TLS: invalid peer certificate", false, "--ca"),
            ("WRONGPASS invalid username-password pair", true, "password"),
            ("NOPERM User bob has no permissions to run the 'sentinel|master' command", true, "rights"),
        ] {
            let report = check(&Made::one().down(0, cause, forbidden).facts);
            assert_eq!(severities(&report), [Severity::Critical]);
            assert!(report.findings[0].advice.contains(part), "{:?}", report.findings);
        }
    }

    #[test]
    fn a_round_trip_must_fit_four_times_into_the_reply_timeout() {
        let with = |millis| {
            let mut made = Made::one();
            made.state(0).round_trips = [1, millis, millis, millis, 900].map(Duration::from_millis).to_vec();
            severities(&check(&made.facts))
        };
        assert_eq!(with(499), []);
        assert_eq!(with(501), [Severity::Warning]);
    }

    #[test]
    fn a_server_without_info_is_unknown() {
        let mut made = Made::one();
        made.state(0).info = Err(NotTold { cause: "NOPERM".to_owned(), forbidden: true });
        assert_eq!(severities(&check(&made.facts)), [Severity::Unknown]);
    }
}
