//! Ids to names, amounts to quantities, reasons to sentences.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::event::{Address, GroupName, Name, QueueName};
use crate::engine::{GroupId, NodeId, PodId, QueueId, ResourceId, Vector};
use crate::quantity;

use super::Amounts;

/// Who the ids stand for.
#[derive(Clone, Debug, Default)]
pub struct Names {
    resources: BTreeMap<ResourceId, Arc<str>>,
    queues: BTreeMap<QueueId, QueueName>,
    nodes: BTreeMap<NodeId, Arc<str>>,
    groups: BTreeMap<GroupId, Arc<GroupName>>,
    pods: BTreeMap<PodId, Address>,
}
