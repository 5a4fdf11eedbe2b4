//! What a restart forgets.

use crate::doctor::{
    facts::{Answering, Facts},
    finding::Report,
};

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for one in facts.masters() {
        let Some(info) = one.info() else {
            report.skip(one.address(), "INFO is not told");
            continue;
        };
        if info.aof == Some(true) && !info.aof_write_ok {
            report.critical(
                one.address(),
                "the last write to its append-only file failed; it refuses to write",
                "Look at its log, and at the space on its disk.",
            );
        }
        if !info.snapshot_ok {
            report.warning(
                one.address(),
                "its last snapshot failed; with stop-writes-on-bgsave-error it refuses to write",
                "Look at its log, and at the space on its disk.",
            );
        }
        if facts.is_quorum() {
            let text =
                if always(&one) { "a restart forgets nothing" } else { "does not vote for a while after a restart" };
            report.remark(format!("{}: {text}", one.address()));
        } else {
            alone(&mut report, &one);
        }
    }
    if facts.is_quorum() {
        for one in facts.answering().filter(|one| one.server.as_replica && always(one)) {
            report.critical(
                one.address(),
                format!(
                    "is a replica of {} with appendfsync always: after a failover and a restart it votes too early",
                    one.node.node
                ),
                "Put no replica behind a node of a quorum, or none with appendfsync always.",
            );
        }
    }
    report
}

/// Whether each write is on the disk before its reply.
fn always(one: &Answering<'_>) -> bool {
    one.info().is_some_and(|info| info.aof == Some(true))
        && one.config().is_some_and(|config| config.appendfsync.as_deref() == Some("always"))
}

/// The only node: nothing else remembers its locks.
fn alone(report: &mut Report, one: &Answering<'_>) {
    if one.info().is_some_and(|info| info.aof == Some(false)) {
        report.warning(
            one.address(),
            "has no append-only file: a restart forgets all locks since the last snapshot",
            "Set appendonly yes; with appendfsync always a restart forgets no lock.",
        );
        return;
    }
    match one.config().and_then(|config| config.appendfsync.as_deref()) {
        Some("no") => report.warning(
            one.address(),
            "appendfsync no: a crash of the machine forgets the locks of up to half a minute",
            "Set appendfsync everysec or always.",
        ),
        Some("everysec") => report.remark(format!("{}: a crash forgets up to a second of locks", one.address())),
        Some(_) => report.remark(format!("{}: a restart forgets nothing", one.address())),
        None => report.skip(one.address(), "CONFIG GET appendfsync is not told"),
    }
}

#[cfg(test)]
mod tests {
    use redlock::examination::ServerConfig;

    use super::*;
    use crate::doctor::{
        checks::made::{Made, severities},
        finding::Severity::{Critical, Warning},
    };

    fn fsync(how: &str) -> ServerConfig {
        ServerConfig { appendfsync: Some(how.to_owned()), ..ServerConfig::default() }
    }

    #[test]
    fn one_node_needs_an_append_only_file_and_a_quorum_none() {
        for (info, how, expected) in [
            ("aof_enabled:1", "everysec", &[][..]),
            ("aof_enabled:1", "always", &[]),
            ("aof_enabled:1", "no", &[Warning]),
            ("aof_enabled:0", "everysec", &[Warning]),
            ("aof_enabled:1\naof_last_write_status:err", "always", &[Critical]),
            ("aof_enabled:1\nrdb_last_bgsave_status:err", "always", &[Warning]),
        ] {
            let mut made = Made::one().info(0, info);
            made.state(0).config = Ok(fsync(how));
            assert_eq!(severities(&check(&made.facts)), expected, "{info} {how}");
        }
        assert_eq!(severities(&check(&Made::quorum(3).info(0, "aof_enabled:0").facts)), []);
    }

    #[test]
    fn a_replica_that_syncs_every_write_is_a_trap_behind_a_node_of_a_quorum() {
        for (how, count, expected) in [("always", 3, &[Critical][..]), ("everysec", 3, &[]), ("always", 1, &[])] {
            let mut made = Made::quorum(count).replica(0, "aof_enabled:1\nrole:slave");
            made.replica_state(0).config = Ok(fsync(how));
            assert_eq!(severities(&check(&made.facts)), expected, "{how} {count}");
        }
    }
}
