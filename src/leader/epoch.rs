//! The fencing number: a `ConfigMap` that each new leader raises and that the guard reads.
//!
//! A release that carries a smaller number than stands there is refused by the apiserver,
//! so a leader that was paused and wakes lets nothing go.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::api::names::{EPOCH_KEY, EPOCH_OBJECT, FIELD_MANAGER};

/// Larger numbers are taken for nonsense: nobody gets there by ones.
const LARGEST: u64 = 1 << 53;

/// The one `ConfigMap`.
#[derive(Clone)]
pub(super) struct Store {
    api: Api<ConfigMap>,
}

/// What stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    epoch: Option<u64>,
    version: String,
}

impl Store {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    /// Raises the number above what stands there and above `floor`; of two that try at
    /// once one fails (409). The new number.
    pub(super) async fn raise(&self, floor: u64) -> Result<u64, kube::Error> {
        let stored = self.read().await?;
        let epoch = raised(stored.as_ref(), floor);
        self.write(stored, epoch).await?;
        Ok(epoch)
    }

    /// Puts a leader's own number back where it was lowered or is gone; a larger one that
    /// stands there is left and returned.
    pub(super) async fn keep(&self, ours: u64) -> Result<Option<u64>, kube::Error> {
        let stored = self.read().await?;
        match stored.as_ref().and_then(|stored| stored.epoch) {
            Some(epoch) if epoch > ours => return Ok(Some(epoch)),
            Some(epoch) if epoch == ours => {}
            _ => {
                tracing::warn!(epoch = ours, "epoch_restored");
                self.write(stored, ours).await?;
            }
        }
        Ok(None)
    }

    async fn read(&self) -> Result<Option<Stored>, kube::Error> {
        Ok(self.api.get_opt(EPOCH_OBJECT).await?.map(|object| stored(&object)))
    }

    async fn write(&self, over: Option<Stored>, epoch: u64) -> Result<(), kube::Error> {
        let data = json!({EPOCH_KEY: epoch.to_string()});
        let manager = Some(FIELD_MANAGER.to_owned());
        if let Some(Stored { version, .. }) = over {
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
            self.api.patch(EPOCH_OBJECT, &params, &Patch::Merge(patch)).await?;
            return Ok(());
        }
        let mut object = ConfigMap::default();
        object.metadata.name = Some(EPOCH_OBJECT.to_owned());
        object.data = Some([(EPOCH_KEY.to_owned(), epoch.to_string())].into());
        let params = PostParams { field_manager: manager, ..PostParams::default() };
        self.api.create(&params, &object).await?;
        Ok(())
    }
}

fn stored(object: &ConfigMap) -> Stored {
    let text = object.data.as_ref().and_then(|data| data.get(EPOCH_KEY));
    let epoch = text.and_then(|text| text.parse().ok()).filter(|&epoch| epoch < LARGEST);
    Stored { epoch, version: object.resource_version().unwrap_or_default() }
}

fn raised(stored: Option<&Stored>, floor: u64) -> u64 {
    let stands = stored.and_then(|stored| stored.epoch).unwrap_or(0);
    stands.max(floor) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn object(epoch: Option<&str>) -> ConfigMap {
        let data = epoch.map(|text| [(EPOCH_KEY.to_owned(), text.to_owned())].into());
        ConfigMap { data, ..ConfigMap::default() }
    }

    #[rstest]
    #[case::first(None, 0, 1)]
    #[case::one_more(Some(object(Some("7"))), 3, 8)]
    #[case::the_lease_has_seen_more(Some(object(Some("2"))), 6, 7)]
    #[case::deleted(None, 6, 7)]
    #[case::emptied(Some(object(None)), 6, 7)]
    #[case::no_number(Some(object(Some("-1"))), 6, 7)]
    #[case::beyond_sense(Some(object(Some("18446744073709551615"))), 6, 7)]
    fn each_leader_has_a_number_above_all_before(
        #[case] there: Option<ConfigMap>,
        #[case] floor: u64,
        #[case] epoch: u64,
    ) {
        assert_eq!(raised(there.as_ref().map(stored).as_ref(), floor), epoch);
    }
}
