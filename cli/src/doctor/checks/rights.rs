//! Whether the user may do all that locks need: by ACL DRYRUN where the server has it and allows it, and by a lock that
//! was acquired, renewed, inspected and released.

use redlock::examination::{DeniedCommand, NodeFacts, ServerState};

use crate::doctor::{
    facts::Facts,
    finding::{Report, Severity},
    trial::{Trial, TrialFailure},
};

/// Commands without which locks work, though worse.
const LESSER: [&str; 5] = ["client|info", "client|kill", "config|get", "ping", "unsubscribe"];
/// The same for commands on channels: without them waiters poll.
const CHANNELS: [&str; 3] = ["subscribe", "ssubscribe", "sunsubscribe"];

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for (number, node) in facts.nodes.iter().enumerate() {
        let before = report.findings.len();
        for one in facts.masters().filter(|one| one.number == number) {
            let user = user(one.state);
            match &one.state.denied {
                Ok(denied) if denied.is_empty() => report.remark(format!("{}: ACL DRYRUN allows all", one.address())),
                Ok(denied) => lacks(&mut report, one.address(), user, denied),
                Err(why) => report.skip(one.address(), &format!("ACL DRYRUN is not told: {}", why.cause)),
            }
            if let Err(why) = &one.state.marker
                && why.forbidden
                && one.state.denied.is_err()
            {
                report.critical(
                    one.address(),
                    format!("user {user} may not read the node's marker: {}", why.cause),
                    set_user(user, &["~redlock_node".to_owned(), "+get".to_owned(), "+set".to_owned()]),
                );
            }
        }
        if report.findings.len() > before {
            continue;
        }
        match facts.trials.get(number).and_then(Option::as_ref) {
            Some(Trial::Failed(failure)) => failed(facts, &mut report, number, failure),
            Some(Trial::Done) => report.remark(format!("{}: acquired, renewed and released a lock", node.node)),
            None => report.skip(&node.node, "no lock was tried"),
        }
    }
    report
}

/// The user of a connection.
fn user(state: &ServerState) -> &str {
    state.user.as_deref().unwrap_or("NAME")
}

/// The rule that adds what is missing.
fn set_user(user: &str, pieces: &[String]) -> String {
    format!("Run: ACL SETUSER {user} {}", pieces.join(" "))
}

/// Names the commands that ACL DRYRUN refuses.
fn lacks(report: &mut Report, address: &str, user: &str, denied: &[DeniedCommand]) {
    let mut pieces: Vec<String> = Vec::new();
    for one in denied {
        let about_command = one.why.contains("run the");
        let piece = if about_command { format!("+{}", one.command) } else { one.pattern.clone() };
        if !piece.is_empty() && !pieces.contains(&piece) {
            pieces.push(piece);
        }
    }
    // Patterns stand before commands, as in the documentation.
    pieces.sort_by_key(|piece| piece.starts_with('+'));
    let is_lesser =
        |one: &DeniedCommand| LESSER.contains(&one.command.as_str()) || CHANNELS.contains(&one.command.as_str());
    let severity = if denied.iter().all(is_lesser) { Severity::Warning } else { Severity::Critical };
    let mut commands: Vec<&str> = Vec::new();
    for one in denied.iter().map(|one| one.command.as_str()) {
        if !commands.contains(&one) {
            commands.push(one);
        }
    }
    let found = format!("user {user} may not run {}", commands.join(", "));
    report.add(severity, Some(address), found, set_user(user, &pieces));
}

/// A trial that failed on a node.
fn failed(facts: &Facts, report: &mut Report, number: usize, failure: &TrialFailure) {
    let node: &NodeFacts = &facts.nodes[number];
    let TrialFailure { step, cause, forbidden } = failure;
    let found = format!("cannot {step} a lock: {cause}");
    if !forbidden {
        report.critical(&node.node, found, "Look for this text in docs/troubleshooting.md.");
        return;
    }
    let user = facts.masters().find(|one| one.number == number).map_or("NAME", |one| user(one.state));
    let pieces = pieces(cause, &facts.settings.prefix);
    let advice = if pieces.is_empty() {
        "Give this user the rights that docs/deployments.md lists.".to_owned()
    } else {
        set_user(user, &pieces)
    };
    report.critical(&node.node, found, advice);
}

/// The rules for what a server refused, by the text of its error: `… 'hset'`, or `…: key, key`.
fn pieces(cause: &str, prefix: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    if cause.contains("channel") {
        pieces.push("&redisson_lock__channel:*".to_owned());
    } else if cause.starts_with("NOPERM")
        && cause.contains("keys")
        && let Some((_, keys)) = cause.split_once(": ")
    {
        for key in keys.split(", ") {
            let own =
                key.split_once(':').is_some_and(|(kind, _)| kind.starts_with("redlock_") && kind != "redlock_doctor");
            let pattern = match key.split_once(':') {
                Some((kind, _)) if own => format!("~{kind}:*"),
                _ if key == "redlock_node" => "~redlock_node".to_owned(),
                _ => format!("~{prefix}*"),
            };
            if !pieces.contains(&pattern) {
                pieces.push(pattern);
            }
        }
    }
    let is_command = |word: &&str| !word.is_empty() && word.chars().all(|one| one.is_ascii_lowercase() || one == '|');
    // Words between apostrophes: a text may also have an apostrophe of its own.
    let quoted = cause.split('\'').skip(1).filter(is_command);
    pieces.extend(quoted.map(|command| format!("+{command}")));
    pieces
}

#[cfg(test)]
mod tests {
    use redlock::examination::NotTold;

    use super::*;
    use crate::doctor::checks::made::{Made, severities};

    fn denied(command: &str, pattern: &str, why: &str) -> DeniedCommand {
        DeniedCommand { command: command.to_owned(), pattern: pattern.to_owned(), why: why.to_owned() }
    }

    #[test]
    fn the_missing_piece_is_a_rule() {
        let with = |all: Vec<DeniedCommand>| {
            let mut made = Made::one();
            made.state(0).denied = Ok(all);
            check(&made.facts)
        };
        assert_eq!(severities(&with(Vec::new())), []);
        let hset = denied("hset", "~app:*", "User bob has no permissions to run the 'hset' command");
        let key = denied("get", "~redlock_token:*", "User bob has no permissions to access the 'redlock_token:x' key");
        let kill = denied("client|kill", "", "User bob has no permissions to run the 'client|kill' command");
        let report = with(vec![hset, key]);
        assert_eq!(severities(&report), [Severity::Critical]);
        assert_eq!(report.findings[0].advice, "Run: ACL SETUSER bob ~redlock_token:* +hset");
        assert_eq!(report.findings[0].found, "user bob may not run hset, get");
        assert_eq!(severities(&with(vec![kill])), [Severity::Warning]);
    }

    #[test]
    fn a_trial_that_failed_says_what_is_missing() {
        let with = |cause: &str, forbidden| {
            let mut made = Made::one();
            made.state(0).denied = Err(NotTold { cause: "NOPERM".to_owned(), forbidden: true });
            let failure = TrialFailure { step: "renew", cause: cause.to_owned(), forbidden };
            made.facts.trials = vec![Some(Trial::Failed(failure))];
            made.facts.settings.prefix = "app:".to_owned();
            let report = check(&made.facts);
            assert_eq!(severities(&report), [Severity::Critical]);
            report.findings[0].advice.clone()
        };
        assert_eq!(
            with("NOPERM User bob has no permissions to run the 'hexists' command", true),
            "Run: ACL SETUSER bob +hexists"
        );
        let in_script = "The user executing the script can't run this command or subcommand: 'hkeys'";
        assert_eq!(with(in_script, true), "Run: ACL SETUSER bob +hkeys");
        let keys = "NOPERM no permissions to access one of the keys: app:redlock_doctor:1, redlock_token:{app:redlock_doctor:1}";
        assert_eq!(with(keys, true), "Run: ACL SETUSER bob ~app:* ~redlock_token:*");
        assert!(with("OOM command not allowed", false).contains("troubleshooting"));
    }
}
