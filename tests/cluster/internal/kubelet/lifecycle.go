package kubelet

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations by which a pod chooses its fate.
const (
	// AnnotationDuration is how long each run lasts (Go duration).
	AnnotationDuration = "fake.tidegate.dev/duration"
	// AnnotationResult is Succeeded, Failed, OOMKilled or Evicted.
	AnnotationResult = "fake.tidegate.dev/result"
	// AnnotationExitCode is the exit code of the first container.
	AnnotationExitCode = "fake.tidegate.dev/exit-code"
	// AnnotationStartDelay is how long the pod stays in ContainerCreating.
	AnnotationStartDelay = "fake.tidegate.dev/start-delay"
	// AnnotationStopDelay is how long a deleted pod takes to end, at most its grace period.
	AnnotationStopDelay = "fake.tidegate.dev/stop-delay"
)

// Results of a pod.
const (
	Succeeded = "Succeeded"
	Failed    = "Failed"
	OOMKilled = "OOMKilled"
	Evicted   = "Evicted"
)

// maxRestarts is where a pod that fails again and again stays in
// CrashLoopBackOff. It is above a Job's default backoffLimit of 6.
const maxRestarts = 10

// Rules are the same for every pod of a node.
type Rules struct {
	// DefaultDuration is the run time of pods that end without saying when.
	DefaultDuration time.Duration
	HostIP          string
}

// Life is what a kubelet remembers of a pod. The API keeps whole seconds only,
// which is too coarse for runs of milliseconds.
type Life struct {
	Seen     time.Time
	Started  time.Time
	Stopping time.Time
	PodIP    string
}

// Step is what to do about a pod now.
type Step struct {
	// Status is to be written, unless nil.
	Status *v1.PodStatus
	// Delete says that the pod's object goes (after Status).
	Delete bool
	// After is when to look again, unless zero.
	After time.Duration
}

// Next decides one step in the life of a pod that is bound to our node.
func (r Rules) Next(pod *v1.Pod, life *Life, now time.Time) Step {
	if life.Seen.IsZero() {
		life.Seen = now
	}
	switch {
	case finished(pod):
		return Step{Delete: deletable(pod)}
	case pod.DeletionTimestamp != nil:
		return r.stop(pod, life, now)
	case pod.Status.Phase == v1.PodRunning:
		return r.run(pod, life, now)
	default:
		return r.start(pod, life, now)
	}
}

func (r Rules) start(pod *v1.Pod, life *Life, now time.Time) Step {
	delay, _ := duration(pod, AnnotationStartDelay)
	if wait := delay - now.Sub(life.Seen); wait > 0 {
		step := Step{After: wait}
		if pod.Status.StartTime == nil {
			step.Status = r.creating(pod, life, now)
		}
		return step
	}
	// Looked at again before our own write came back: the run has begun already.
	if life.Started.IsZero() {
		life.Started = now
	}
	return Step{Status: r.running(pod, life, 0)}
}

func (r Rules) run(pod *v1.Pod, life *Life, now time.Time) Step {
	if life.Started.IsZero() {
		life.Started = startedAt(pod, now)
	}
	if crashed(pod) {
		return Step{}
	}
	if isTrue(pod.Status.Conditions, v1.PodReady) != gatesOpen(pod) {
		return Step{Status: r.readiness(pod, life, now)}
	}
	end, ends := r.ending(pod)
	ran := now.Sub(life.Started)
	if limit := pod.Spec.ActiveDeadlineSeconds; limit != nil {
		deadline := time.Duration(*limit) * time.Second
		if !ends || deadline < end.after {
			// The deadline counts from the pod's start, over all restarts.
			ran = now.Sub(life.Seen)
			end, ends = ending{after: deadline, result: deadlineExceeded, exitCode: 137}, true
		}
	}
	if !ends {
		return Step{}
	}
	if wait := end.after - ran; wait > 0 {
		return Step{After: wait}
	}
	if restarts := restartCount(pod); end.restarts(pod) {
		if restarts >= maxRestarts {
			return Step{Status: r.backOff(pod, end, life, now)}
		}
		life.Started = now
		return Step{Status: r.running(pod, life, restarts+1), After: end.after}
	}
	return Step{Status: r.ended(pod, end, life, now)}
}

// stop ends a deleted pod as the kubelet has done since 1.27: first a terminal
// phase, then the object.
func (r Rules) stop(pod *v1.Pod, life *Life, now time.Time) Step {
	if life.Stopping.IsZero() {
		life.Stopping = now
	}
	delay, _ := duration(pod, AnnotationStopDelay)
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		delay = min(delay, time.Duration(*grace)*time.Second)
	}
	if wait := delay - now.Sub(life.Stopping); wait > 0 {
		return Step{After: wait}
	}
	// Few programs catch SIGTERM, and the shell's code for it is 143.
	end := ending{result: Failed, exitCode: 143}
	return Step{Status: r.ended(pod, end, life, now), Delete: deletable(pod)}
}

const deadlineExceeded = "DeadlineExceeded"

// An ending is how and when a run ends.
type ending struct {
	after    time.Duration
	result   string
	exitCode int32
}

// ending says whether the pod ends by itself. Without annotations only pods of
// Jobs and bare pods do: other owners keep servers (an MPI worker is
// restartPolicy Never and yet serves until it is deleted).
func (r Rules) ending(pod *v1.Pod) (ending, bool) {
	after, timed := duration(pod, AnnotationDuration)
	result := pod.Annotations[AnnotationResult]
	code, coded := exitCode(pod)
	if !timed && result == "" && !coded && !endsByDefault(pod) {
		return ending{}, false
	}
	if !timed {
		after = r.DefaultDuration
	}
	switch result {
	case Failed:
		if !coded || code == 0 {
			code = 1
		}
	case OOMKilled, Evicted:
		code = 137
	case Succeeded:
		code = 0
	default:
		result = Succeeded
		if code != 0 {
			result = Failed
		}
	}
	return ending{after: after, result: result, exitCode: code}, true
}

// restarts says whether the containers run again in the same pod. A pod of
// restartPolicy Always that was told to end does end.
func (e ending) restarts(pod *v1.Pod) bool {
	failed := e.result == Failed || e.result == OOMKilled
	return failed && pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure
}

func endsByDefault(pod *v1.Pod) bool {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.Kind == "Job" && groupOf(owner.APIVersion) == "batch"
	}
	return len(pod.OwnerReferences) == 0 && pod.Spec.RestartPolicy != v1.RestartPolicyAlways
}

func groupOf(apiVersion string) string {
	for i, c := range apiVersion {
		if c == '/' {
			return apiVersion[:i]
		}
	}
	return ""
}

func finished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// deletable is false once we have deleted the pod: then only finalizers hold it.
func deletable(pod *v1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && (grace == nil || *grace > 0)
}

func duration(pod *v1.Pod, key string) (time.Duration, bool) {
	d, err := time.ParseDuration(pod.Annotations[key])
	return d, err == nil
}

func exitCode(pod *v1.Pod) (int32, bool) {
	code, err := strconv.ParseInt(pod.Annotations[AnnotationExitCode], 10, 32)
	return int32(code), err == nil
}

func restartCount(pod *v1.Pod) int32 {
	var most int32
	for _, c := range pod.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return most
}

func crashed(pod *v1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason == crashLoop {
			return true
		}
	}
	return false
}

// startedAt is for a pod that ran before we came.
func startedAt(pod *v1.Pod, now time.Time) time.Time {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.State.Running.StartedAt.Time
		}
	}
	return now
}
