//! Webhooks that answer slowly, and two of which one is killed or says nothing any more.

use std::{
    ops::Deref,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde_json::json;

use crate::support::{
    balancer::Balancer,
    lab::Lab,
    storm::{Attempt, attempt},
    tidegate::{Exclusive, Tidegate},
    wait,
    webhooks::Webhook,
};

/// How long an apiserver waits for an answer: `timeoutSeconds` of the gating webhook.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pods that are made at the same time, each on a connection of its own.
const AT_ONCE: usize = 8;

/// Two webhooks behind a Service, and somebody who makes pods.
struct Two {
    webhooks: [Webhook; 2],
    service: Balancer,
    made: usize,
    lab: Lab,
    /// Dropped last: whoever comes next finds the ports free.
    tidegate: Exclusive,
}

impl Deref for Two {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// What came of pods that were made at once.
#[derive(Debug, Default)]
struct Round {
    /// How long each that was refused took.
    refused: Vec<Duration>,
    longest: Duration,
}

impl Two {
    /// Both have connections open to them.
    async fn start(name: &str) -> Result<Self> {
        let tidegate = Tidegate::exclusive().await?;
        let lab = Lab::on(&tidegate, name, json!({"stop": "Hold"})).await?;
        tidegate.stop_webhook("KILL")?;
        let first = Webhook::start(&tidegate, "webhook-a").await?;
        let webhooks = [first, Webhook::start(&tidegate, "webhook-b").await?];
        let service = Balancer::start(tidegate.webhook_port(), &[])?;
        let mut two = Self { tidegate, webhooks, service, made: 0, lab };
        two.both();
        wait::until("both are called", wait::SOON, async || {
            two.round().await?;
            Ok(two.webhooks.iter().all(|webhook| two.service.open(webhook.port) > 0))
        })
        .await?;
        Ok(two)
    }

    fn both(&self) {
        self.service.set(&self.webhooks.each_ref().map(|webhook| webhook.port));
    }

    /// Makes pods. Each is gated, or refused by the webhook's name.
    async fn round(&mut self) -> Result<Round> {
        let first = self.made;
        self.made += AT_ONCE;
        let lab = &self.lab;
        let tries = (first..self.made).map(async |number| {
            let start = Instant::now();
            let outcome = attempt(lab, &format!("pod-{number}")).await?;
            anyhow::Ok((outcome, start.elapsed()))
        });
        let mut round = Round::default();
        for (outcome, took) in try_join_all(tries).await? {
            round.longest = round.longest.max(took);
            if let Attempt::Refused(text) = outcome {
                ensure!(
                    text.contains("failed calling webhook \"gate-pods.tidegate.dev\""),
                    "{text}"
                );
                round.refused.push(took);
            }
        }
        Ok(round)
    }

    /// Makes pods until all of a round are gated; how many were refused before, and the time.
    async fn until_none_is_refused(&mut self) -> Result<(usize, Duration)> {
        let (start, mut refused) = (Instant::now(), 0);
        wait::until("no pod is refused", wait::SOON, async || {
            let round = self.round().await?;
            refused += round.refused.len();
            Ok(round.refused.is_empty())
        })
        .await?;
        Ok((refused, start.elapsed()))
    }

    /// Whoever comes next finds the installation as it was.
    async fn end(self) -> Result<()> {
        let Self { tidegate, webhooks, service, .. } = self;
        drop((service, webhooks));
        tidegate.start_webhook().await?;
        tidegate.ready().await
    }
}

#[tokio::test]
async fn of_two_webhooks_one_falls_silent_and_each_connection_to_it_costs_one_create_at_most()
-> Result<()> {
    let mut two = Two::start("silent").await?;
    let silent = two.webhooks[0].port;
    two.webhooks[0].process.signal("STOP")?;
    // The Service still leads to both.
    let (mut rounds, mut refused) = (0, 0);
    wait::until("one is refused and one is gated", wait::SOON, async || {
        let round = two.round().await?;
        ensure!(round.refused.iter().all(|&took| took >= TIMEOUT), "{round:?}");
        refused += round.refused.len();
        rounds += 1;
        Ok(refused > 0 && refused < rounds * AT_ONCE)
    })
    .await?;
    eprintln!("in the Service: {refused} of {} creates refused", rounds * AT_ONCE);
    // Its readiness probe has failed.
    two.service.set(&[two.webhooks[1].port]);
    let kept = two.service.open(silent);
    let (refused, took) = two.until_none_is_refused().await?;
    eprintln!("out of it: {refused} refused with {kept} connections kept, then none; {took:?}");
    ensure!(refused <= kept, "{refused} refused, and {kept} connections were kept");
    // It comes back with all that it was asked meanwhile.
    two.webhooks[0].process.signal("CONT")?;
    two.both();
    let (refused, _) = two.until_none_is_refused().await?;
    ensure!(refused == 0, "{refused} refused when it was back");
    two.end().await
}

/// Kept connections to it end with it, so that only new ones meet nobody.
#[tokio::test]
async fn of_two_webhooks_one_is_killed_under_load_and_creates_fail_only_until_the_service_knows()
-> Result<()> {
    let mut two = Two::start("one-killed").await?;
    let pid = two.webhooks[0].process.pid().to_string();
    let kill = async { Ok(Command::new("kill").args(["-KILL", &pid]).status()?) };
    // The Service still leads to both.
    let (mut round, _) = tokio::try_join!(two.round(), kill)?;
    for _ in 0..3 {
        eprintln!("in the Service: {} of {AT_ONCE} creates refused", round.refused.len());
        ensure!(round.refused.len() < AT_ONCE, "the other one is there: {round:?}");
        ensure!(round.refused.iter().all(|&took| took < TIMEOUT), "not at once: {round:?}");
        round = two.round().await?;
    }
    two.service.set(&[two.webhooks[1].port]);
    for _ in 0..3 {
        let round = two.round().await?;
        ensure!(round.refused.is_empty(), "nobody leads there any more: {round:?}");
    }
    two.webhooks[0] = Webhook::start(&two.tidegate, "webhook-c").await?;
    two.both();
    let round = two.round().await?;
    ensure!(round.refused.is_empty(), "when another one had come: {round:?}");
    two.end().await
}

#[tokio::test]
async fn webhooks_that_answer_late_delay_creates_and_those_that_answer_too_late_refuse_them()
-> Result<()> {
    let mut two = Two::start("slow").await?;
    let wait = Duration::from_millis(100);
    two.service.slow(wait);
    let round = two.round().await?;
    ensure!(round.refused.is_empty() && round.longest >= wait, "{round:?}");
    eprintln!("answers {wait:?} late: creates take up to {:?}", round.longest);
    two.service.slow(2 * TIMEOUT);
    let round = two.round().await?;
    ensure!(round.refused.len() == AT_ONCE, "{round:?}");
    ensure!(round.refused.iter().all(|&took| took >= TIMEOUT), "{round:?}");
    eprintln!("too late: all refused after {:?} at most", round.longest);
    two.service.slow(Duration::ZERO);
    let (refused, _) = two.until_none_is_refused().await?;
    ensure!(refused == 0, "{refused} refused when all was well again");
    two.end().await
}
