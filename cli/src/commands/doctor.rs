//! `redlock doctor`: looks for what makes locks fail, and says what to do.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    connect::ConnectOptions,
    doctor::{CHECKS, Check, Diagnosis, Facts, Finding, Report, Severity},
    duration,
    exit_code::ExitStatusCode,
    failure::Failure,
    table::visible,
    talk::Talk,
};

/// Check the servers, the user's rights and the settings of all clients, and say what to do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes, as Nagios has them: 0 no problems; 1 warnings; 2 something critical; 3 a check could not be made. 64 usage.

Each check of -v is described in docs/doctor.md. Tries a lock of one second on each node; --read-only leaves that out.

Example:
  redlock doctor --json | jq -r 'select(.severity == \"critical\") | .found'")]
pub(crate) struct DoctorOptions {
    /// The time between two looks at each clock; 0 looks once
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "2s")]
    interval: Duration,
    /// Write nothing on the servers: do not try a lock
    #[arg(long)]
    read_only: bool,
}

pub(crate) fn run(options: &DoctorOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let facts = Facts::collect(servers, talk, options.interval, !options.read_only)?;
    let diagnosis = Diagnosis::of(&facts);
    for (check, finding) in diagnosis.findings() {
        if talk.json() { talk.object(&object(check, finding))? } else { talk.line(&line(check, finding, talk))? }
    }
    if talk.verbose() {
        for (check, report) in &diagnosis.checks {
            details(check, report, talk)?;
        }
    }
    summary(&diagnosis, facts.nodes.len(), talk)?;
    Ok(code(&diagnosis))
}

/// A finding in a line: how bad, which check, where, what, what to do, and the page.
fn line(check: &Check, finding: &Finding, talk: &Talk) -> String {
    let Finding { severity, node, found, advice } = finding;
    let node = node.as_ref().map_or_else(String::new, |node| format!("{node}: "));
    let head = talk.marked(&format!("{:<8}", severity.as_str()), *severity == Severity::Critical);
    let text = visible(&format!("{:<12}  {node}{found}. {advice} ({})", check.name, check.page()));
    format!("{head}  {text}")
}

fn object(check: &Check, finding: &Finding) -> Value {
    let Finding { severity, node, found, advice } = finding;
    json!({
        "severity": severity.as_str(),
        "check": check.name,
        "node": node,
        "found": found,
        "advice": advice,
        "page": check.page(),
    })
}

/// A check that found nothing, and what is behind that.
fn details(check: &Check, report: &Report, talk: &Talk) -> Result<(), Failure> {
    let has_passed = report.findings.is_empty();
    let word = if report.skipped.is_empty() { "ok" } else { "partial" };
    if talk.json() {
        if has_passed {
            let found = check.passed;
            talk.object(&json!({
                "severity": word, "check": check.name, "node": null, "found": found, "advice": null,
                "page": check.page(), "remarks": report.remarks, "skipped": report.skipped,
            }))?;
        }
        return Ok(());
    }
    if has_passed {
        talk.line(&format!("{word:<8}  {:<12}  {}", check.name, check.passed))?;
    }
    for text in &report.remarks {
        talk.detail(&visible(&format!("{}: {text}", check.name)));
    }
    for text in &report.skipped {
        talk.detail(&visible(&format!("{}: not looked at: {text}", check.name)));
    }
    Ok(())
}

/// The last line: on stdout if it is the only one, else on stderr.
fn summary(diagnosis: &Diagnosis, nodes: usize, talk: &Talk) -> Result<(), Failure> {
    let count = |severity| diagnosis.count(severity);
    let skipped: usize = diagnosis.checks.iter().filter(|(_, report)| !report.skipped.is_empty()).count();
    let partly = if skipped == 0 { String::new() } else { format!(", {skipped} of them in part (-v says why)") };
    let plural = if nodes == 1 { "" } else { "s" };
    let where_to = format!("on {nodes} node{plural}; {} checks{partly}", CHECKS.len());
    let found: Vec<String> = [Severity::Critical, Severity::Warning, Severity::Unknown]
        .into_iter()
        .filter(|severity| count(*severity) > 0)
        .map(|severity| format!("{} {}", count(severity), severity.as_str()))
        .collect();
    if found.is_empty() {
        let text = format!("no problems found {where_to}");
        if talk.json() { talk.say(&text) } else { talk.line(&text)? }
    } else {
        talk.say(&format!("{} {where_to}", found.join(", ")));
    }
    Ok(())
}

fn code(diagnosis: &Diagnosis) -> ExitStatusCode {
    let has = |severity| diagnosis.count(severity) > 0;
    if has(Severity::Critical) {
        ExitStatusCode::CRITICAL
    } else if has(Severity::Warning) {
        ExitStatusCode::WARNING
    } else if has(Severity::Unknown) {
        ExitStatusCode::UNKNOWN
    } else {
        ExitStatusCode::DONE
    }
}
