package kubelet

import (
	"fmt"
	"maps"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RackLabel groups nodes that stand close together.
const RackLabel = "topology.tidegate.dev/rack"

// A NodeSpec describes a fake node. Empty fields take a default.
type NodeSpec struct {
	Name   string `json:"name"`
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	Pods   string `json:"pods,omitempty"`
	// Extended resources, such as nvidia.com/gpu.
	Extended map[string]string `json:"extended,omitempty"`
	// Allocatable overrides single resources; the rest equals the capacity.
	Allocatable   map[string]string `json:"allocatable,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Taints        []v1.Taint        `json:"taints,omitempty"`
	Unschedulable bool              `json:"unschedulable,omitempty"`
}

// object builds the Node. Number places it in a zone and a rack: two nodes
// make a rack, racks take turns in three zones.
func (n NodeSpec) object(number int, now time.Time) (*v1.Node, error) {
	capacity, err := quantities(map[string]string{
		"cpu":               or(n.CPU, "16"),
		"memory":            or(n.Memory, "64Gi"),
		"pods":              or(n.Pods, "110"),
		"ephemeral-storage": "1Ti",
	}, n.Extended)
	if err != nil {
		return nil, err
	}
	override, err := quantities(n.Allocatable)
	if err != nil {
		return nil, err
	}
	allocatable := capacity.DeepCopy()
	maps.Copy(allocatable, override)
	rack := number / 2
	labels := map[string]string{
		v1.LabelHostname:     n.Name,
		v1.LabelOSStable:     "linux",
		v1.LabelArchStable:   "amd64",
		v1.LabelTopologyZone: "zone-" + string(rune('a'+rack%3)),
		RackLabel:            fmt.Sprintf("rack-%d", rack+1),
	}
	maps.Copy(labels, n.Labels)
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Spec: v1.NodeSpec{
			Taints:        n.Taints,
			Unschedulable: n.Unschedulable,
			ProviderID:    "fake://" + n.Name,
		},
		Status: v1.NodeStatus{
			Capacity:    capacity,
			Allocatable: allocatable,
			Conditions:  nodeConditions(v1.ConditionTrue, now),
			Addresses: []v1.NodeAddress{
				{Type: v1.NodeInternalIP, Address: hostIP(number)},
				{Type: v1.NodeHostName, Address: n.Name},
			},
			NodeInfo: v1.NodeSystemInfo{
				KubeletVersion:          "v1.36.3",
				ContainerRuntimeVersion: "fake://1",
				OperatingSystem:         "linux",
				Architecture:            "amd64",
			},
		},
	}, nil
}

// nodeConditions is what a kubelet reports; status is that of Ready.
func nodeConditions(status v1.ConditionStatus, now time.Time) []v1.NodeCondition {
	reasons := map[v1.ConditionStatus][2]string{
		v1.ConditionTrue:    {"KubeletReady", "fake kubelet is posting ready status"},
		v1.ConditionFalse:   {"KubeletNotReady", "fake kubelet was told to be not ready"},
		v1.ConditionUnknown: {"NodeStatusUnknown", "Kubelet stopped posting node status."},
	}
	at := metav1.NewTime(now)
	condition := func(kind v1.NodeConditionType, status v1.ConditionStatus, reason, message string) v1.NodeCondition {
		return v1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: at, LastTransitionTime: at,
		}
	}
	return []v1.NodeCondition{
		condition(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory", ""),
		condition(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure", ""),
		condition(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID", ""),
		condition(v1.NodeReady, status, reasons[status][0], reasons[status][1]),
	}
}

func lease(node *v1.Node, seconds int32, now time.Time) *coordination.Lease {
	at := metav1.NewMicroTime(now)
	return &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:      node.Name,
			Namespace: v1.NamespaceNodeLease,
			// As with a real kubelet: the lease goes with its node.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		Spec: coordination.LeaseSpec{
			HolderIdentity:       &node.Name,
			LeaseDurationSeconds: &seconds,
			RenewTime:            &at,
		},
	}
}

func quantities(from ...map[string]string) (v1.ResourceList, error) {
	all := v1.ResourceList{}
	for _, m := range from {
		for name, text := range m {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s %q: %w", name, text, err)
			}
			all[v1.ResourceName(name)] = q
		}
	}
	return all, nil
}

func hostIP(number int) string { return fmt.Sprintf("10.0.%d.%d", 1+number/250, 1+number%250) }

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
