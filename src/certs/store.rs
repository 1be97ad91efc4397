//! Keeps the Secret good: made when absent, renewed when due, followed by another in stages.
//!
//! Every write states what it replaces, so of two writers one wins and the other
//! adopts what it finds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::secret::{self, Home};
use super::{Error, Held, Pace, Resolver, Step, inject};
use crate::api::names::FIELD_MANAGER;

/// How often the Secret is looked at.
const PERIOD: Duration = Duration::from_secs(5);
/// The same while one authority follows another, and after a failure.
const SOON: Duration = Duration::from_secs(1);
/// Lost races before giving up until the next look.
const ATTEMPTS: usize = 5;

/// Keeps the Secret good, serves its leaf by `resolver` and tells callers' bundle to
/// `bundle`, until cancelled. Any number of processes may do so at once.
pub async fn keep(
    mut keeper: Keeper,
    resolver: Arc<Resolver>,
    bundle: watch::Sender<Option<String>>,
    stop: CancellationToken,
) {
    loop {
        let outcome = look(&mut keeper, &resolver, &bundle).await;
        if let Err(error) = &outcome {
            warn!(secret = keeper.home.secret, %error, "authority not kept");
        }
        let period = if outcome.is_ok_and(|held| !held.rotates()) { PERIOD } else { SOON };
        if stop.run_until_cancelled(tokio::time::sleep(period)).await.is_none() {
            return;
        }
    }
}

async fn look(
    keeper: &mut Keeper,
    resolver: &Resolver,
    bundle: &watch::Sender<Option<String>>,
) -> Result<Held, Error> {
    let held = keeper.ensure(Timestamp::now()).await?;
    if resolver.set(held.authority.tls_crt.as_bytes(), held.authority.tls_key.as_bytes())? {
        info!(secret = keeper.home.secret, "certificate loaded");
    }
    bundle.send_if_modified(|current| {
        let new = held.bundle();
        let changed = current.as_ref() != Some(&new);
        *current = Some(new);
        changed
    });
    Ok(held)
}

/// Looks after one Secret.
pub struct Keeper {
    client: Client,
    home: Home,
    pace: Pace,
    /// What was found last: a Secret that is deleted comes back with it.
    last: Option<Held>,
    carried: Carried,
}

impl Keeper {
    /// Who has not looked yet.
    #[must_use]
    pub fn new(client: Client, home: Home, pace: Pace) -> Self {
        Self { client, home, pace, last: None, carried: Carried::default() }
    }

    /// Makes the Secret hold what is good at this time, at most one step further than it
    /// was, and returns it.
    pub async fn ensure(&mut self, now: Timestamp) -> Result<Held, Error> {
        let secrets = self.home.secrets(&self.client);
        for _ in 0..ATTEMPTS {
            let stored = secrets.get_opt(&self.home.secret).await?;
            match self.attempt(stored, now).await {
                // 409: exists by now, or is another version by now. Look again.
                Err(Error::Api(kube::Error::Api(status))) if status.code == 409 => {}
                Err(error) => return Err(error),
                Ok(held) => {
                    self.last = Some(held.clone());
                    return Ok(held);
                }
            }
        }
        Err(Error::Contended)
    }

    async fn attempt(&mut self, stored: Option<Secret>, now: Timestamp) -> Result<Held, Error> {
        let post =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let secrets = self.home.secrets(&self.client);
        let Some(mut secret) = stored else {
            let held = self.anew(now).await?;
            secrets.create(&post, &secret::new(&self.home, &held)).await?;
            info!(secret = self.home.secret, rotates = held.rotates(), "secret made");
            return Ok(held);
        };
        let held = secret::read(&secret);
        let carried = self.carried(&held).await;
        let step = held.step(&self.home.names, carried, &self.pace, now);
        let held = match &step {
            Step::Rest => return Ok(held),
            Step::Replace(_) => self.anew(now).await?,
            step => held.after(step, &self.home.names, now)?,
        };
        // The version read above travels with it: a racing writer makes this a conflict.
        secret::write(&mut secret, &held);
        secrets.replace(&self.home.secret, &post, &secret).await?;
        info!(secret = self.home.secret, ?step, "certificates changed");
        Ok(held)
    }

    /// What to keep in place of a Secret that is gone or useless. What this process knows is
    /// good for callers until they trust another authority; who knows nothing leaves them
    /// what they trust.
    async fn anew(&self, now: Timestamp) -> Result<Held, Error> {
        let names = &self.home.names;
        match &self.last {
            Some(last) if last.authority.serves(names, now) && last.rotates() => Ok(last.clone()),
            Some(last) if last.authority.serves(names, now) => {
                last.clone().after(&Step::Introduce("the Secret was gone".to_owned()), names, now)
            }
            _ => Held::first(names, &inject::bundles(&self.client, &self.home).await?, now),
        }
    }

    /// For how long every caller has been seen to carry the bundle. Asked only while it matters.
    async fn carried(&mut self, held: &Held) -> Option<Duration> {
        let carried = held.rotates() && self.is_carried(&held.bundle()).await;
        self.carried.note(held, carried, Instant::now())
    }

    async fn is_carried(&self, bundle: &str) -> bool {
        inject::is_carried(&self.client, &self.home, bundle).await.unwrap_or_else(|error| {
            warn!(secret = self.home.secret, %error, "bundles not read");
            false
        })
    }
}

/// Since when every caller has been seen to carry a bundle while a leaf was shown.
#[derive(Debug, Default)]
struct Carried {
    /// Bundle and leaf.
    what: Option<(String, String)>,
    since: Option<Instant>,
}

impl Carried {
    fn note(&mut self, held: &Held, carried: bool, at: Instant) -> Option<Duration> {
        let what = (held.bundle(), held.authority.tls_crt.clone());
        if !carried {
            self.what = None;
            return None;
        }
        if self.what.as_ref() != Some(&what) {
            *self = Self { what: Some(what), since: Some(at) };
        }
        self.since.map(|since| at.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::Names;

    fn held() -> Held {
        let names = Names::of_services("ns", &["s"], &[]);
        Held::first(&names, &[], Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn the_time_counts_only_while_the_same_is_carried_without_a_break() {
        let (first, second, start) = (held(), held(), Instant::now());
        let mut carried = Carried::default();
        let mut note = |held: &Held, is, after| {
            let seconds = Duration::from_secs;
            carried.note(held, is, start + seconds(after)).map(|lasted| lasted.as_secs())
        };
        assert_eq!(note(&first, false, 0), None);
        assert_eq!(note(&first, true, 1), Some(0));
        assert_eq!(note(&first, true, 4), Some(3));
        assert_eq!(note(&second, true, 5), Some(0));
        assert_eq!(note(&second, false, 6), None);
        assert_eq!(note(&second, true, 9), Some(0));
    }
}
