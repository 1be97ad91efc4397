//! Flags of leader election, by the names that client-go's programs give them.

use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;

use crate::leader::{self, Candidate, Settings, Standing, Timing};

use super::duration;

/// Which of several controllers decides.
#[derive(Clone, Debug, clap::Args)]
pub struct Leadership {
    /// Decide only while holding a Lease. Without it this must be the only controller.
    #[arg(
        long,
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    leader_elect: bool,
    /// How long others wait after a leader's last renewal before one of them leads; whole seconds.
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    leader_elect_lease_duration: Duration,
    /// How long a leader may fail to renew before it stops.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    leader_elect_renew_deadline: Duration,
    /// Time between two renewals.
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION")]
    leader_elect_retry_period: Duration,
    /// Name of the pod that this runs in. A process takes over at once from an earlier one of
    /// its own pod.
    #[arg(long, env = "TIDEGATE_POD_NAME", value_name = "NAME")]
    pod_name: Option<String>,
}

impl Leadership {
    /// The same for the room that elects.
    ///
    /// # Errors
    /// Durations that do not go together.
    pub fn settings(&self, namespace: &str) -> anyhow::Result<Settings> {
        let timing = Timing::new(
            Duration::from_secs(self.leader_elect_lease_duration.as_secs()),
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
        );
        let timing = timing.map_err(anyhow::Error::msg).context("leader election")?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let candidate = Candidate::new(self.pod_name.clone(), host.trim(), &leader::life());
        let timing = self.leader_elect.then_some(timing);
        Ok(Settings { namespace: namespace.to_owned(), candidate, timing })
    }

    /// Name of the pod that this runs in, where it does.
    pub fn pod_name(&self) -> Option<String> {
        self.pod_name.clone()
    }
}

/// Comes once it is known who leads.
pub async fn known(mut standing: watch::Receiver<Standing>) {
    if standing.wait_for(|standing| *standing != Standing::Unknown).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Comes once this process leads, if it ever does: its epoch.
pub async fn leads(mut standing: watch::Receiver<Standing>) -> u64 {
    loop {
        if let Standing::Leads { epoch } = *standing.borrow_and_update() {
            return epoch;
        }
        if standing.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("15s", Some(15_000))]
    #[case("500ms", Some(500))]
    #[case("2m", Some(120_000))]
    #[case("15", None)]
    #[case("s", None)]
    #[case("-1s", None)]
    fn durations_are_read_as_people_write_them(#[case] text: &str, #[case] millis: Option<u64>) {
        assert_eq!(duration(text).ok(), millis.map(Duration::from_millis));
    }

    #[tokio::test]
    async fn who_leads_is_waited_for() {
        let (sender, receiver) = watch::channel(Standing::Unknown);
        let waits = tokio::spawn(async move {
            known(receiver.clone()).await;
            leads(receiver).await
        });
        sender.send_replace(Standing::Follows);
        sender.send_replace(Standing::Leads { epoch: 7 });
        assert_eq!(waits.await.unwrap(), 7);
    }
}
