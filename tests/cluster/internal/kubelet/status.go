package kubelet

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const crashLoop = "CrashLoopBackOff"

// base is the pod's status with what never changes after the kubelet took it.
func (r Rules) base(pod *v1.Pod, life *Life) *v1.PodStatus {
	s := pod.Status.DeepCopy()
	s.ObservedGeneration = pod.Generation
	s.HostIP = r.HostIP
	s.HostIPs = []v1.HostIP{{IP: r.HostIP}}
	if s.StartTime == nil {
		start := metav1.NewTime(life.Seen)
		s.StartTime = &start
	}
	return s
}

func (r Rules) creating(pod *v1.Pod, life *Life, now time.Time) *v1.PodStatus {
	s := r.base(pod, life)
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	s.Phase = v1.PodPending
	s.InitContainerStatuses = initStatuses(pod, waiting, waiting)
	s.ContainerStatuses = statuses(pod, func(int) v1.ContainerState { return waiting }, 0)
	c := conditions{s, now, pod.Generation}
	c.set(v1.PodScheduled, true, "")
	c.set(v1.PodInitialized, len(pod.Spec.InitContainers) == 0, "ContainersNotInitialized")
	c.set(v1.ContainersReady, false, "ContainersNotReady")
	c.set(v1.PodReady, false, "ContainersNotReady")
	return s
}

// running is the status of a pod whose run began at life.Started.
func (r Rules) running(pod *v1.Pod, life *Life, restarts int32) *v1.PodStatus {
	s := r.base(pod, life)
	at := metav1.NewTime(life.Started)
	up := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}
	done := terminated(0, "Completed", at, at)
	s.Phase = v1.PodRunning
	s.PodIP = life.PodIP
	if pod.Spec.HostNetwork {
		s.PodIP = r.HostIP
	}
	s.PodIPs = []v1.PodIP{{IP: s.PodIP}}
	s.InitContainerStatuses = initStatuses(pod, done, up)
	last := s.ContainerStatuses
	s.ContainerStatuses = statuses(pod, func(int) v1.ContainerState { return up }, restarts)
	if restarts > 0 {
		end, _ := r.ending(pod)
		for i := range s.ContainerStatuses {
			s.ContainerStatuses[i].LastTerminationState = end.state(i, began(last, i, at), at)
		}
	}
	c := conditions{s, life.Started, pod.Generation}
	c.set(v1.PodReadyToStartContainers, true, "")
	c.set(v1.PodScheduled, true, "")
	c.set(v1.PodInitialized, true, "")
	c.set(v1.ContainersReady, true, "")
	c.set(v1.PodReady, gatesOpen(pod), "ReadinessGatesNotReady")
	return s
}

// readiness follows the pod's readiness gates while it runs.
func (r Rules) readiness(pod *v1.Pod, life *Life, now time.Time) *v1.PodStatus {
	s := r.base(pod, life)
	conditions{s, now, pod.Generation}.set(v1.PodReady, gatesOpen(pod), "ReadinessGatesNotReady")
	return s
}

// backOff is the status of a pod that is not restarted any more.
func (r Rules) backOff(pod *v1.Pod, end ending, life *Life, now time.Time) *v1.PodStatus {
	restarts := restartCount(pod)
	s := r.base(pod, life)
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: crashLoop}}
	last := s.ContainerStatuses
	at := metav1.NewTime(now)
	s.ContainerStatuses = statuses(pod, func(int) v1.ContainerState { return waiting }, restarts)
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].LastTerminationState = end.state(i, began(last, i, at), at)
	}
	c := conditions{s, now, pod.Generation}
	c.set(v1.ContainersReady, false, "ContainersNotReady")
	c.set(v1.PodReady, false, "ContainersNotReady")
	return s
}

// ended is the terminal status.
func (r Rules) ended(pod *v1.Pod, end ending, life *Life, now time.Time) *v1.PodStatus {
	s := r.base(pod, life)
	at := metav1.NewTime(now)
	last := s.ContainerStatuses
	state := func(i int) v1.ContainerState { return end.state(i, began(last, i, at), at) }
	done := terminated(0, "Completed", *s.StartTime, at)
	s.InitContainerStatuses = initStatuses(pod, done, done)
	s.ContainerStatuses = statuses(pod, state, restartCount(pod))
	c := conditions{s, now, pod.Generation}
	reason := "PodFailed"
	switch end.result {
	case Succeeded:
		s.Phase = v1.PodSucceeded
		reason = "PodCompleted"
	case Evicted:
		s.Phase = v1.PodFailed
		s.Reason = "Evicted"
		s.Message = "The node was low on resource: memory."
		c.set(v1.DisruptionTarget, true, v1.PodReasonTerminationByKubelet)
	case deadlineExceeded:
		s.Phase = v1.PodFailed
		s.Reason = deadlineExceeded
		s.Message = "Pod was active on the node longer than the specified deadline"
	default:
		s.Phase = v1.PodFailed
	}
	c.set(v1.PodReadyToStartContainers, false, "")
	c.set(v1.PodInitialized, true, end.doneReason())
	c.set(v1.ContainersReady, false, reason)
	c.set(v1.PodReady, false, reason)
	return s
}

func (e ending) doneReason() string {
	if e.result == Succeeded {
		return "PodCompleted"
	}
	return ""
}

// state is the terminated state of container i. Only the first one fails, so
// that a failure policy can tell containers apart.
func (e ending) state(i int, from, at metav1.Time) v1.ContainerState {
	if e.exitCode == 0 || (i > 0 && e.result != Evicted) {
		return terminated(0, "Completed", from, at)
	}
	if e.result == OOMKilled {
		return terminated(e.exitCode, OOMKilled, from, at)
	}
	return terminated(e.exitCode, "Error", from, at)
}

func terminated(code int32, reason string, from, at metav1.Time) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: from, FinishedAt: at,
	}}
}

// began is when container i of the last known statuses started.
func began(last []v1.ContainerStatus, i int, otherwise metav1.Time) metav1.Time {
	if i < len(last) && last[i].State.Running != nil {
		return last[i].State.Running.StartedAt
	}
	return otherwise
}

func statuses(pod *v1.Pod, state func(int) v1.ContainerState, restarts int32) []v1.ContainerStatus {
	all := make([]v1.ContainerStatus, 0, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		all = append(all, containerStatus(pod, &pod.Spec.Containers[i], state(i), restarts))
	}
	return all
}

// initStatuses tells ordinary init containers from sidecars, which run along
// with the pod.
func initStatuses(pod *v1.Pod, ordinary, sidecar v1.ContainerState) []v1.ContainerStatus {
	var all []v1.ContainerStatus
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		state := ordinary
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			state = sidecar
		}
		s := containerStatus(pod, c, state, 0)
		// An init container that did its work counts as ready.
		s.Ready = s.Ready || (state.Terminated != nil && state.Terminated.ExitCode == 0)
		all = append(all, s)
	}
	return all
}

func containerStatus(pod *v1.Pod, c *v1.Container, state v1.ContainerState, restarts int32) v1.ContainerStatus {
	up := state.Running != nil
	s := v1.ContainerStatus{
		Name: c.Name, Image: c.Image, State: state, RestartCount: restarts,
		Ready: up, Started: &up,
	}
	if state.Waiting == nil || restarts > 0 {
		s.ImageID = "fake://" + c.Image
		s.ContainerID = fmt.Sprintf("fake://%s/%s/%d", pod.UID, c.Name, restarts)
	}
	return s
}

func gatesOpen(pod *v1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		if !isTrue(pod.Status.Conditions, gate.ConditionType) {
			return false
		}
	}
	return true
}

func isTrue(all []v1.PodCondition, kind v1.PodConditionType) bool {
	for _, c := range all {
		if c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// conditions sets conditions of a status at one moment.
type conditions struct {
	status     *v1.PodStatus
	at         time.Time
	generation int64
}

// set keeps the transition time of a condition that does not change. The
// reason is dropped where the condition is true, except where a reason is the
// whole point of it.
func (c conditions) set(kind v1.PodConditionType, value bool, reason string) {
	now := v1.PodCondition{
		Type: kind, Status: v1.ConditionFalse, Reason: reason,
		LastTransitionTime: metav1.NewTime(c.at), ObservedGeneration: c.generation,
	}
	if value {
		now.Status = v1.ConditionTrue
		if kind == v1.ContainersReady || kind == v1.PodReady {
			now.Reason = ""
		}
	}
	for i, old := range c.status.Conditions {
		if old.Type != kind {
			continue
		}
		if old.Status == now.Status {
			now.LastTransitionTime = old.LastTransitionTime
		}
		c.status.Conditions[i] = now
		return
	}
	c.status.Conditions = append(c.status.Conditions, now)
}
