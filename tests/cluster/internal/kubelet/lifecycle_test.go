package kubelet

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	rules = Rules{DefaultDuration: time.Second, HostIP: "10.0.1.1"}
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// A story applies steps to a pod as the API server would.
type story struct {
	t    *testing.T
	pod  *v1.Pod
	life Life
	now  time.Time
}

func tell(t *testing.T, change func(*v1.Pod)) *story {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyNever,
			Containers:    []v1.Container{{Name: "main"}, {Name: "helper"}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	change(pod)
	return &story{t: t, pod: pod, life: Life{PodIP: "10.128.0.1"}, now: epoch}
}

// step moves the clock and takes one step.
func (s *story) step(later time.Duration) Step {
	s.now = s.now.Add(later)
	step := rules.Next(s.pod, &s.life, s.now)
	if step.Status != nil {
		s.pod.Status = *step.Status
	}
	return step
}

func (s *story) phase(want v1.PodPhase) {
	s.t.Helper()
	if got := s.pod.Status.Phase; got != want {
		s.t.Fatalf("phase is %s, want %s", got, want)
	}
}

func (s *story) condition(kind v1.PodConditionType, want bool) {
	s.t.Helper()
	if got := isTrue(s.pod.Status.Conditions, kind); got != want {
		s.t.Fatalf("condition %s is %v, want %v", kind, got, want)
	}
}

func annotate(pod *v1.Pod, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		pod.Annotations[pairs[i]] = pairs[i+1]
	}
}

func own(pod *v1.Pod, apiVersion, kind string) {
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Controller: &yes}}
}

func TestBarePodRunsAndSucceeds(t *testing.T) {
	s := tell(t, func(*v1.Pod) {})
	s.step(0)
	s.phase(v1.PodRunning)
	s.condition(v1.PodReady, true)
	if got := s.step(400 * time.Millisecond); got.After != 600*time.Millisecond || got.Status != nil {
		t.Fatalf("a running pod waits for its end, not %+v", got)
	}
	s.step(600 * time.Millisecond)
	s.phase(v1.PodSucceeded)
	s.condition(v1.PodReady, false)
	if got := s.step(time.Hour); got != (Step{}) {
		t.Fatalf("a finished pod rests, not %+v", got)
	}
}

func TestWhoEndsByDefault(t *testing.T) {
	for _, c := range []struct {
		name              string
		apiVersion, owner string
		policy            v1.RestartPolicy
		ends              bool
	}{
		{"bare", "", "", v1.RestartPolicyNever, true},
		{"bare server", "", "", v1.RestartPolicyAlways, false},
		{"Job", "batch/v1", "Job", v1.RestartPolicyNever, true},
		{"another Job", "batch.volcano.sh/v1alpha1", "Job", v1.RestartPolicyNever, false},
		{"MPI worker", "kubeflow.org/v2beta1", "MPIJob", v1.RestartPolicyNever, false},
		{"ReplicaSet", "apps/v1", "ReplicaSet", v1.RestartPolicyAlways, false},
	} {
		s := tell(t, func(p *v1.Pod) {
			p.Spec.RestartPolicy = c.policy
			if c.owner != "" {
				own(p, c.apiVersion, c.owner)
			}
		})
		if _, ends := rules.ending(s.pod); ends != c.ends {
			t.Errorf("%s: ends by itself: %v, want %v", c.name, ends, c.ends)
		}
	}
}

func TestAnnotationsEndAnyPod(t *testing.T) {
	s := tell(t, func(p *v1.Pod) {
		own(p, "apps/v1", "ReplicaSet")
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
		annotate(p, AnnotationDuration, "50ms")
	})
	s.step(0)
	s.step(50 * time.Millisecond)
	s.phase(v1.PodSucceeded)
}

func TestExitCodeOfTheFirstContainer(t *testing.T) {
	s := tell(t, func(p *v1.Pod) { annotate(p, AnnotationExitCode, "42") })
	s.step(0)
	s.step(time.Second)
	s.phase(v1.PodFailed)
	for i, want := range []int32{42, 0} {
		if got := s.pod.Status.ContainerStatuses[i].State.Terminated; got == nil || got.ExitCode != want {
			t.Errorf("container %d: %+v, want exit code %d", i, got, want)
		}
	}
}

func TestOutOfMemoryAndEviction(t *testing.T) {
	s := tell(t, func(p *v1.Pod) { annotate(p, AnnotationResult, OOMKilled) })
	s.step(0)
	s.step(time.Second)
	s.phase(v1.PodFailed)
	if got := s.pod.Status.ContainerStatuses[0].State.Terminated; got.Reason != OOMKilled || got.ExitCode != 137 {
		t.Errorf("out of memory: %+v", got)
	}

	s = tell(t, func(p *v1.Pod) {
		p.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		annotate(p, AnnotationResult, Evicted)
	})
	s.step(0)
	s.step(time.Second)
	s.phase(v1.PodFailed)
	s.condition(v1.DisruptionTarget, true)
	if s.pod.Status.Reason != Evicted {
		t.Errorf("reason of an evicted pod: %q", s.pod.Status.Reason)
	}
}

func TestOnFailureRestartsInPlaceUpToABound(t *testing.T) {
	s := tell(t, func(p *v1.Pod) {
		p.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		annotate(p, AnnotationResult, Failed, AnnotationDuration, "10ms")
	})
	s.step(0)
	for n := int32(1); n <= maxRestarts; n++ {
		s.step(10 * time.Millisecond)
		s.phase(v1.PodRunning)
		status := s.pod.Status.ContainerStatuses[0]
		if status.RestartCount != n || status.LastTerminationState.Terminated == nil {
			t.Fatalf("restart %d: %+v", n, status)
		}
	}
	s.step(10 * time.Millisecond)
	s.condition(v1.PodReady, false)
	if !crashed(s.pod) || s.step(time.Hour) != (Step{}) {
		t.Error("past the bound a pod stays in CrashLoopBackOff")
	}
}

func TestStartDelayShowsContainerCreating(t *testing.T) {
	s := tell(t, func(p *v1.Pod) { annotate(p, AnnotationStartDelay, "2s") })
	if got := s.step(0); got.After != 2*time.Second {
		t.Fatalf("waits %v, want 2s", got.After)
	}
	s.phase(v1.PodPending)
	if got := s.pod.Status.ContainerStatuses[0].State.Waiting.Reason; got != "ContainerCreating" {
		t.Errorf("waiting for %q", got)
	}
	if got := s.step(time.Second); got.Status != nil {
		t.Error("the same status is written once")
	}
	s.step(time.Second)
	s.phase(v1.PodRunning)
}

func TestInitContainersAndSidecars(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	s := tell(t, func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}}
	})
	s.step(0)
	all := s.pod.Status.InitContainerStatuses
	if all[0].State.Terminated == nil || !all[0].Ready || all[1].State.Running == nil || !*all[1].Started {
		t.Errorf("init containers of a running pod: %+v", all)
	}
	s.step(time.Second)
	s.phase(v1.PodSucceeded)
	if got := s.pod.Status.InitContainerStatuses[1].State.Terminated; got == nil {
		t.Error("a sidecar ends with its pod")
	}
}

func TestDeletionGoesThroughATerminalPhase(t *testing.T) {
	s := tell(t, func(p *v1.Pod) { own(p, "ray.io/v1", "RayCluster"); annotate(p, AnnotationStopDelay, "1h") })
	s.step(0)
	grace := int64(30)
	s.pod.DeletionTimestamp = &metav1.Time{Time: s.now}
	s.pod.DeletionGracePeriodSeconds = &grace
	if got := s.step(0); got.After != 30*time.Second || got.Delete {
		t.Fatalf("the grace period bounds the delay: %+v", got)
	}
	if got := s.step(30 * time.Second); !got.Delete {
		t.Fatalf("then it goes: %+v", got)
	}
	s.phase(v1.PodFailed)
	grace = 0
	if got := s.step(0); got.Delete {
		t.Error("a pod that only finalizers hold is not deleted again")
	}
}

func TestDeadline(t *testing.T) {
	seconds := int64(3)
	s := tell(t, func(p *v1.Pod) { own(p, "x/v1", "Server"); p.Spec.ActiveDeadlineSeconds = &seconds })
	s.step(0)
	s.step(3 * time.Second)
	s.phase(v1.PodFailed)
	if s.pod.Status.Reason != deadlineExceeded {
		t.Errorf("reason %q", s.pod.Status.Reason)
	}
}

func TestReadinessGateHoldsReadyBack(t *testing.T) {
	s := tell(t, func(p *v1.Pod) { p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "x/y"}} })
	s.step(0)
	s.condition(v1.ContainersReady, true)
	s.condition(v1.PodReady, false)
	gate := v1.PodCondition{Type: "x/y", Status: v1.ConditionTrue}
	s.pod.Status.Conditions = append(s.pod.Status.Conditions, gate)
	s.step(0)
	s.condition(v1.PodReady, true)
}

func TestNodeObject(t *testing.T) {
	n, err := NodeSpec{
		Name: "n", Extended: map[string]string{"nvidia.com/gpu": "8"},
		Allocatable: map[string]string{"cpu": "15500m"}, Labels: map[string]string{"a": "b"},
	}.object(2, epoch)
	if err != nil {
		t.Fatal(err)
	}
	gpus := n.Status.Allocatable["nvidia.com/gpu"]
	if gpus.Value() != 8 || n.Status.Allocatable.Cpu().MilliValue() != 15500 || n.Status.Capacity.Cpu().Value() != 16 {
		t.Errorf("resources: %v of %v", n.Status.Allocatable, n.Status.Capacity)
	}
	if n.Labels[RackLabel] != "rack-2" || n.Labels[v1.LabelTopologyZone] != "zone-b" || n.Labels["a"] != "b" {
		t.Errorf("labels: %v", n.Labels)
	}
	if _, err := (NodeSpec{Name: "n", CPU: "many"}).object(0, epoch); err == nil {
		t.Error("a quantity that is none is refused")
	}
}
