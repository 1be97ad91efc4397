//! Whose turn it is, beyond age and share.

use anyhow::{Result, ensure};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{
    lab::{Lab, bare_pod, older},
    record::Record,
};

/// A pod of a gang that starts with two.
fn of_gang(name: &str) -> Value {
    let mut pod = bare_pod(name, "1");
    pod["metadata"]["annotations"] =
        json!({"tidegate.dev/group": "gang", "tidegate.dev/min-count": "2"});
    pod
}

#[rstest]
#[case::first("First", ["more", "begins"])]
#[case::fair("Fair", ["begins", "more"])]
#[tokio::test]
async fn more_of_a_gang_that_runs_goes_before_what_has_not_begun_unless_growth_is_fair(
    #[case] growth: &str,
    #[case] turns: [&str; 2],
) -> Result<()> {
    let room = json!({"cpu": "3"});
    let name = format!("grow-{}", growth.to_lowercase());
    let spec = json!({"guaranteed": room, "limit": room, "growth": growth});
    let lab = Lab::new(&name, spec).await?;
    let record = Record::start(lab.pod_api()).await?;
    lab.pod("fills", "1").await?;
    lab.released(&["fills"]).await?;
    lab.create(of_gang("a")).await?;
    lab.create(of_gang("b")).await?;
    lab.released(&["a", "b", "fills"]).await?;
    let begins = lab.create(bare_pod("begins", "1")).await?;
    older(&begins.try_parse()?).await?;
    lab.create(of_gang("more")).await?;
    lab.why_says("pod/begins", "limit of queue").await?;
    lab.why_says("pod/more", "limit of queue").await?;
    lab.delete_pod("fills").await?;
    record.has_released(4).await?;
    lab.delete_pod("a").await?;
    record.has_released(5).await?;
    let released = record.released();
    ensure!(released[3..] == turns, "{released:?}");
    lab.one_patch_each().await
}
