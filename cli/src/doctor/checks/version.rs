//! Whether each server is a program, of a version and in a mode, with which locks are tested.

use redlock::examination::{NodeKind, Product};

use crate::doctor::{
    facts::{Answering, Facts},
    finding::Report,
};

const ADVICE: &str = "Use Redis 6.2 or newer, or Valkey.";

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for one in facts.masters() {
        let Some(info) = one.info() else {
            report.skip(one.address(), "INFO is not told");
            continue;
        };
        let version = info.version.as_deref().unwrap_or("of an unknown version");
        match (&info.product, info.release()) {
            (Product::Other(name), _) => {
                report.warning(one.address(), format!("is {name}, with which locks are not tested"), ADVICE);
            }
            (Product::Redis, Some(release)) if release < (6, 0) => report.warning(
                one.address(),
                format!("Redis {version} is too old: without RESP3, losses are noticed later"),
                ADVICE,
            ),
            (Product::Redis, Some(release)) if release < (6, 2) => report.warning(
                one.address(),
                format!("Redis {version} is too old: fair and read/write locks need Redis 6.2"),
                ADVICE,
            ),
            (Product::Redis, Some(release)) if release < (7, 0) && one.node.kind == NodeKind::Cluster => report
                .warning(
                    one.address(),
                    format!("Redis {version} is too old for a cluster: it has no sharded messages"),
                    "Use Redis 7.0 or newer, or Valkey, on a cluster.",
                ),
            (Product::Valkey, _) => report.remark(format!("{}: Valkey {version}", one.address())),
            _ => report.remark(format!("{}: Redis {version}", one.address())),
        }
        mode(&mut report, &one);
        lua(&mut report, &one);
    }
    report
}

/// Whether the server has the mode that the URL says.
fn mode(report: &mut Report, one: &Answering<'_>) {
    match (one.node.kind, one.info().and_then(|info| info.mode.as_deref())) {
        (_, Some("sentinel")) => report.critical(
            one.address(),
            "is a Sentinel, which keeps no locks",
            "Use redis+sentinel:// with the name of the master.",
        ),
        (NodeKind::Server, Some("cluster")) => {
            report.critical(one.address(), "is a server of a Redis Cluster", "Use redis+cluster://.");
        }
        _ => {}
    }
}

/// A right that is missing is a matter of the check of rights.
fn lua(report: &mut Report, one: &Answering<'_>) {
    if let Err(why) = &one.state.lua
        && !why.forbidden
        && !one.info().is_some_and(|info| info.loading || info.mode.as_deref() == Some("sentinel"))
    {
        report.critical(one.address(), format!("does not run Lua scripts: {}", why.cause), ADVICE);
    }
}

#[cfg(test)]
mod tests {
    use redlock::examination::NotTold;

    use super::*;
    use crate::doctor::{
        checks::made::{Made, severities},
        finding::Severity::{self, Critical, Warning},
    };

    fn of(info: &str, kind: NodeKind) -> Vec<Severity> {
        let mut made = Made::one().info(0, info);
        made.facts.nodes[0].kind = kind;
        severities(&check(&made.facts))
    }

    #[test]
    fn old_and_other_servers_are_named() {
        for (info, kind, expected) in [
            ("redis_version:7.0.15", NodeKind::Server, &[][..]),
            ("redis_version:6.2.14", NodeKind::Server, &[]),
            ("redis_version:7.2.4\nvalkey_version:8.1.8", NodeKind::Server, &[]),
            ("redis_version:7.2.4\nvalkey_version:8.1.8", NodeKind::Cluster, &[]),
            ("redis_version:6.0.16", NodeKind::Server, &[Warning]),
            ("redis_version:5.0.14", NodeKind::Server, &[Warning]),
            ("redis_version:6.2.14", NodeKind::Cluster, &[Warning]),
            ("redis_version:7.4.0\ndragonfly_version:df-v1.25.0", NodeKind::Server, &[Warning]),
            ("redis_version:7.0.15\nredis_mode:cluster", NodeKind::Server, &[Critical]),
            ("redis_version:7.0.15\nredis_mode:cluster", NodeKind::Cluster, &[]),
            ("redis_version:7.0.15\nredis_mode:sentinel", NodeKind::Server, &[Critical]),
        ] {
            assert_eq!(of(info, kind), expected, "{info} {kind:?}");
        }
    }

    #[test]
    fn a_server_without_lua_is_critical_but_not_one_that_forbids_it() {
        for (forbidden, expected) in [(false, &[Critical][..]), (true, &[])] {
            let mut made = Made::one();
            made.state(0).lua = Err(NotTold { cause: "unknown command 'EVAL'".to_owned(), forbidden });
            assert_eq!(severities(&check(&made.facts)), expected);
        }
    }
}
