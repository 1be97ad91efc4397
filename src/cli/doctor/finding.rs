//! What a check found, and all that were found.

use serde::Serialize;

use crate::cli::Failure;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, or cannot be told; somebody should look.
    Warn,
    /// Does not work, or not safely.
    Fail,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What is there, in a sentence.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, message: message.into(), remedy: None }
    }

    /// Somebody should look.
    pub fn warn(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (message, remedy) = (message.into(), Some(remedy.into()));
        Self { check, verdict: Verdict::Warn, message, remedy }
    }

    /// Does not work.
    pub fn fail(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(check, message, remedy) }
    }

    fn lines(&self, width: usize) -> String {
        let Self { check, verdict, message, remedy } = self;
        let line = format!("{:4}   {check:width$}   {message}\n", verdict.as_str());
        let indent = " ".repeat(4 + 3 + width + 3);
        let remedy = remedy.iter().map(|remedy| format!("{indent}-> {remedy}\n"));
        std::iter::once(line).chain(remedy).collect()
    }
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Nothing fails.
    pub healthy: bool,
    /// In the order in which things depend on each other.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Sums up.
    pub fn new(findings: Vec<Finding>) -> Self {
        let healthy = findings.iter().all(|finding| finding.verdict != Verdict::Fail);
        Self { healthy, findings }
    }

    /// For people: a line each, what to do below it, the sum last.
    pub fn text(&self) -> String {
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        let lines: String = self.findings.iter().map(|finding| finding.lines(width)).collect();
        let count = |verdict| self.findings.iter().filter(|f| f.verdict == verdict).count();
        let [ok, warn, fail] = [Verdict::Ok, Verdict::Warn, Verdict::Fail].map(count);
        format!("{lines}\n{ok} ok, {warn} to look at, {fail} failed.\n")
    }

    /// For machines.
    pub fn json(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| Failure::Error(format!("cannot print: {error}")))?;
        Ok(format!("{text}\n"))
    }
}
