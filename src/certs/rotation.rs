//! One authority follows another without a call that fails. Pure.
//!
//! ```text
//! steady ──introduce──► two trusted, old leaf ──switch──► two trusted, new leaf ──drop──► steady
//! ```
//!
//! The stage is what the Secret holds and nothing else, so any process can go on
//! from it at any time. How long a stage lasts is measured by each process for
//! itself, from when it saw that every caller carries the bundle: clocks of two
//! processes need not agree, and a restart only makes a stage longer.

use std::time::Duration;

use jiff::Timestamp;

use super::Error;
use super::authority::{Authority, Names, Standing, is_certificate};

/// Certificates that others left in the bundles and that stay trusted for a while.
const ADOPTED: usize = 4;
const END: &str = "-----END CERTIFICATE-----";

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whose leaf is shown.
    pub authority: Authority,
    /// Follows `authority`; it has signed nothing yet.
    pub next: Option<Authority>,
    /// Certificates of earlier authorities whose leaves may still be shown.
    pub old: Option<String>,
    /// Somebody asked for another authority.
    pub asked: bool,
}

/// How long the stages last at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Both authorities are in every caller's configuration for so long before the new one
    /// signs: an apiserver may learn of a change late.
    pub settle: Duration,
    /// The earlier authority stays trusted for so long after the new one has signed: a kubelet
    /// takes up to a minute and a half to renew a mounted Secret.
    pub overlap: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { settle: Duration::from_mins(1), overlap: Duration::from_hours(1) }
    }
}

/// What is to be done now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet.
    Rest,
    /// The authority signs another leaf.
    Renew(String),
    /// Another authority is made and told to callers.
    Introduce(String),
    /// The next authority signs the leaf.
    Switch(String),
    /// Earlier authorities are no longer trusted.
    Drop,
    /// Nothing here can be used: begin anew.
    Replace(String),
}

impl Held {
    /// A first authority with its leaf, beside what callers trusted before.
    pub fn first(names: &Names, trusted: &[String], now: Timestamp) -> Result<Self, Error> {
        let authority = Authority::issue(names, now)?;
        Ok(Self { authority, next: None, old: adopt(trusted, now), asked: false })
    }

    /// What callers must trust, the oldest first: a switch leaves it as it is.
    #[must_use]
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| next.ca_crt.as_str());
        let parts = [self.old.as_deref(), Some(self.authority.ca_crt.as_str()), next];
        parts.into_iter().flatten().fold(String::new(), |bundle, part| joined(&bundle, part))
    }

    /// Whether callers trust more than one authority.
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.next.is_some() || self.old.is_some()
    }

    /// What is due. `carried` is for how long every caller was seen to carry
    /// [`Self::bundle`] while the present leaf was shown; `None` if one does not.
    #[must_use]
    pub fn step(
        &self,
        names: &Names,
        carried: Option<Duration>,
        pace: &Pace,
        now: Timestamp,
    ) -> Step {
        let lasted = |least: Duration| carried.is_some_and(|carried| carried >= least);
        let next_signs = self.next.as_ref().map(|next| next.signs(now).map(drop));
        match (self.authority.standing(names, now), next_signs) {
            // There is no leaf to keep showing, so there is nothing to wait for.
            (Standing::Lost(why), Some(Ok(()))) => Step::Switch(why),
            (Standing::Lost(why), _) => Step::Replace(why),
            (Standing::LeafDue(why), _) => Step::Renew(why),
            (_, Some(Err(why))) => Step::Introduce(why.to_string()),
            (_, Some(Ok(()))) if lasted(pace.settle) => {
                Step::Switch("every caller trusts both".to_owned())
            }
            (_, None) if self.old.is_some() && lasted(pace.overlap) => Step::Drop,
            _ if self.rotates() => Step::Rest,
            (Standing::AuthorityDue(why), _) => Step::Introduce(why),
            (Standing::Good, _) if self.asked => Step::Introduce("asked to".to_owned()),
            (Standing::Good, _) => Step::Rest,
        }
    }

    /// What the Secret is to hold after a step.
    pub fn after(self, step: &Step, names: &Names, now: Timestamp) -> Result<Self, Error> {
        match step {
            Step::Rest => Ok(self),
            Step::Renew(_) => {
                Ok(Self { authority: self.authority.with_new_leaf(names, now)?, ..self })
            }
            Step::Introduce(_) => {
                Ok(Self { next: Some(Authority::without_leaf(now)?), asked: false, ..self })
            }
            Step::Switch(_) => self.switched(names, now),
            Step::Drop => Ok(Self { old: None, ..self }),
            Step::Replace(_) => Self::first(names, &[], now),
        }
    }

    fn switched(self, names: &Names, now: Timestamp) -> Result<Self, Error> {
        let Some(next) = &self.next else { return Ok(self) };
        let authority = next.with_new_leaf(names, now)?;
        let earlier = self.old.as_deref().unwrap_or_default();
        let old = Some(joined(earlier, &self.authority.ca_crt)).filter(|old| !old.is_empty());
        Ok(Self { authority, next: None, old, asked: self.asked })
    }
}

/// The certificates of these texts that mean something at this time, each once.
fn adopt(texts: &[String], now: Timestamp) -> Option<String> {
    let mut found: Vec<&str> = Vec::new();
    let certificates = texts.iter().flat_map(|text| text.split_inclusive(END)).map(str::trim);
    for certificate in certificates.filter(|text| is_certificate(text, now)) {
        if found.len() < ADOPTED && !found.contains(&certificate) {
            found.push(certificate);
        }
    }
    let joined = found.into_iter().fold(String::new(), |all, one| joined(&all, one));
    Some(joined).filter(|text| !text.is_empty())
}

fn joined(first: &str, second: &str) -> String {
    let lines = first.trim_end().lines().chain(second.trim_end().lines());
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests;
