//! Whether a server may evict a held lock, or refuses new ones because its memory is full.

use crate::doctor::{facts::Facts, finding::Report};

/// The share of `maxmemory` from which memory is short.
const FULL: f64 = 0.8;

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for one in facts.answering() {
        let Some(info) = one.info() else {
            report.skip(one.address(), "INFO is not told");
            continue;
        };
        let Some(most) = info.maxmemory.filter(|most| *most > 0) else {
            report.remark(format!("{}: no maxmemory", one.address()));
            continue;
        };
        let policy = info.policy.as_deref().unwrap_or("noeviction");
        if policy != "noeviction" {
            let evicted = info.evicted_keys.filter(|evicted| *evicted > 0);
            let evicted = evicted.map_or_else(String::new, |keys| format!("; it has evicted {keys} keys"));
            report.critical(
                one.address(),
                format!("maxmemory-policy {policy} may evict held locks{evicted}"),
                "Set maxmemory-policy noeviction.",
            );
        }
        let share = info.used_memory.unwrap_or_default() as f64 / most as f64;
        if policy == "noeviction" && share >= FULL && !one.server.as_replica {
            let found = format!("{:.0} % of maxmemory is used; when it is full, acquires are refused", share * 100.0);
            report.warning(one.address(), found, "Free memory, or raise maxmemory.");
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{
        checks::made::{Made, severities},
        finding::Severity::{Critical, Warning},
    };

    #[test]
    fn only_a_policy_that_can_act_is_named() {
        for (info, expected) in [
            ("maxmemory:0\nmaxmemory_policy:allkeys-lru", &[][..]),
            ("maxmemory:1000\nmaxmemory_policy:noeviction\nused_memory:700", &[]),
            ("maxmemory:1000\nmaxmemory_policy:noeviction\nused_memory:900", &[Warning]),
            ("maxmemory:1000\nmaxmemory_policy:volatile-ttl\nused_memory:10", &[Critical]),
        ] {
            assert_eq!(severities(&check(&Made::one().info(0, info).facts)), expected, "{info}");
        }
        let info = "maxmemory:1000\nmaxmemory_policy:allkeys-lru\nevicted_keys:7";
        let report = check(&Made::one().info(0, info).facts);
        assert!(report.findings[0].found.ends_with("it has evicted 7 keys"), "{report:?}");
    }
}
