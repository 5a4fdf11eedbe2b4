//! Judges a deployment: `facts` collects what the servers say and tries a lock, `checks` has a file for each check, and
//! `finding` is what they find. `outlook` is what a live view shows of each node.

mod checks;
mod facts;
mod finding;
mod outlook;
mod trial;

pub(crate) use self::{
    checks::{CHECKS, Check},
    facts::Facts,
    finding::{Finding, Report, Severity},
    outlook::{Outlook, Role, Vote},
};

/// The page of a check: its heading there is the check's name.
const PAGE: &str = "docs/doctor.md";

/// What all checks found.
pub(crate) struct Diagnosis {
    /// Each check with its report, in the order of the checks.
    pub(crate) checks: Vec<(&'static Check, Report)>,
}

impl Diagnosis {
    /// Runs all checks.
    pub(crate) fn of(facts: &Facts) -> Self {
        Self { checks: CHECKS.iter().map(|check| (check, (check.run)(facts))).collect() }
    }

    /// All findings with their checks, the worst first.
    pub(crate) fn findings(&self) -> Vec<(&'static Check, &Finding)> {
        let mut all: Vec<_> = self
            .checks
            .iter()
            .flat_map(|(check, report)| report.findings.iter().map(move |one| (*check, one)))
            .collect();
        all.sort_by_key(|(_, finding)| finding.severity);
        all
    }

    /// How many findings have this severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        let findings = self.checks.iter().flat_map(|(_, report)| &report.findings);
        findings.filter(|finding| finding.severity == severity).count()
    }
}

impl Check {
    /// Where the check is described.
    pub(crate) fn page(&self) -> String {
        format!("{PAGE}#{}", self.name)
    }
}
