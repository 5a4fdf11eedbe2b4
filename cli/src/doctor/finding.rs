//! What a check found.

/// How bad a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Locks cannot be acquired, or are not exclusive.
    Critical,
    /// Locks work, until something else happens.
    Warning,
    /// A check could not be made without which nothing can be said.
    Unknown,
}

impl Severity {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
        }
    }
}

/// One problem: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// The address of the server or of the node; `None` for the whole deployment.
    pub(crate) node: Option<String>,
    /// What was found, without a full stop.
    pub(crate) found: String,
    /// What to do, a sentence.
    pub(crate) advice: String,
}

/// What a check found, and what it did not look at.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// Facts that are no problem, for `--verbose`.
    pub(crate) remarks: Vec<String>,
    /// What could not be looked at, and why, for `--verbose`.
    pub(crate) skipped: Vec<String>,
}

impl Report {
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        node: Option<&str>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.findings.push(Finding {
            severity,
            node: node.map(str::to_owned),
            found: found.into(),
            advice: advice.into(),
        });
    }

    pub(crate) fn critical(&mut self, node: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Critical, Some(node), found, advice);
    }

    pub(crate) fn warning(&mut self, node: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(Severity::Warning, Some(node), found, advice);
    }

    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    pub(crate) fn skip(&mut self, node: &str, why: &str) {
        self.skipped.push(format!("{node}: {why}"));
    }
}
