//! Whose turn it is, beyond age and share.

use anyhow::{Result, ensure};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{
    lab::{Lab, bare_pod, is_gated, older},
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

#[rstest]
#[case::without_a_half_life(None)]
#[case::with_a_half_life(Some("1h"))]
#[tokio::test]
async fn who_used_less_before_goes_first_where_the_queue_above_has_a_half_life(
    #[case] half_life: Option<&str>,
) -> Result<()> {
    let name = if half_life.is_some() { "past" } else { "present" };
    let above = json!({"limit": {"cpu": "1"}, "usageHalfLife": half_life});
    Lab::shared_client().await?.queue(name, above).await?;
    let old = Lab::new(&format!("{name}-old"), json!({"parent": name})).await?;
    let new = Lab::new(&format!("{name}-new"), json!({"parent": name})).await?;
    old.pod("ran", "1").await?;
    old.released(&["ran"]).await?;
    older(&old.pod("waits", "1").await?).await?;
    new.pod("waits", "1").await?;
    for lab in [&old, &new] {
        lab.why_says("pod/waits", "limit of queue").await?;
    }
    old.delete_pod("ran").await?;
    let [goes, stays] = if half_life.is_some() { [&new, &old] } else { [&old, &new] };
    goes.released_at_least("waits").await?;
    stays.why_says("pod/waits", "limit of queue").await?;
    ensure!(is_gated(&stays.pod_api().get("waits").await?), "there is room for one");
    goes.no_patch_twice()
}
