// Package kubelet plays the kubelets of fake nodes: nodes are objects with a
// heartbeat, and the pods bound to them start, run and end on a timetable.
package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
)

const workers = 16

// Options of a Kubelet.
type Options struct {
	DefaultDuration time.Duration
	// Heartbeat is the time between two renewals of a node's lease.
	Heartbeat time.Duration
}

// Kubelet serves all fake nodes of one cluster.
type Kubelet struct {
	client kubernetes.Interface
	opts   Options
	pods   *podStore
	queue  workqueue.TypedRateLimitingInterface[string]
	beats  workqueue.TypedRateLimitingInterface[string]

	mu     sync.Mutex
	nodes  map[string]*node
	lives  map[types.UID]*Life
	number int
	nextIP uint32
}

type node struct {
	object *v1.Node
	hostIP string
	ready  bool
}

// New makes a Kubelet that talks to the API server of config.
func New(config *rest.Config, opts Options) (*Kubelet, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "fake-kubelet"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		client: client,
		opts:   opts,
		queue:  newQueue(),
		beats:  newQueue(),
		nodes:  map[string]*node{},
		lives:  map[types.UID]*Life{},
	}
	k.pods = newPodStore(k.enqueue, k.forget)
	return k, nil
}

// Run serves until the context ends.
func (k *Kubelet) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { work(ctx, k.queue, k.sync) })
	}
	for range 4 {
		wg.Go(func() { work(ctx, k.beats, k.beat) })
	}
	wg.Go(func() { k.pods.reflector(k.client).RunWithContext(ctx) })
	<-ctx.Done()
	k.queue.ShutDown()
	k.beats.ShutDown()
	wg.Wait()
}

// AddNodes registers nodes and begins their heartbeats. Places in zones and
// racks are given in the order of the arguments.
func (k *Kubelet) AddNodes(ctx context.Context, specs ...NodeSpec) error {
	k.mu.Lock()
	first := k.number
	k.number += len(specs)
	k.mu.Unlock()
	results := make([]error, len(specs))
	tokens := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i, spec := range specs {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			results[i] = k.addNode(ctx, spec, first+i)
		})
	}
	wg.Wait()
	return errors.Join(results...)
}

func (k *Kubelet) addNode(ctx context.Context, spec NodeSpec, number int) error {
	wanted, err := spec.object(number, time.Now())
	if err != nil {
		return fmt.Errorf("node %s: %w", spec.Name, err)
	}
	object, err := k.client.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("node %s: %w", spec.Name, err)
	}
	k.mu.Lock()
	k.nodes[spec.Name] = &node{object: object, hostIP: hostIP(number), ready: true}
	k.mu.Unlock()
	k.beats.Add(spec.Name)
	k.enqueueNode(spec.Name)
	return nil
}

// RemoveNode takes the node away, as when a machine is scaled in. Its pods
// stay until the pod garbage collector finds them.
func (k *Kubelet) RemoveNode(ctx context.Context, name string) error {
	k.mu.Lock()
	delete(k.nodes, name)
	k.mu.Unlock()
	return k.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
}

// SetReady revives a node (True) or makes it look dead: Unknown as if its
// kubelet had gone, False as if it reported a fault. While a node is not ready
// nothing moves on it and its pods' deletion is not completed.
func (k *Kubelet) SetReady(ctx context.Context, name string, status v1.ConditionStatus) error {
	k.mu.Lock()
	n := k.nodes[name]
	if n != nil {
		n.ready = status == v1.ConditionTrue
	}
	k.mu.Unlock()
	if n == nil {
		return fmt.Errorf("no node %q", name)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": nodeConditions(status, time.Now())}})
	if err != nil {
		return err
	}
	if _, err := k.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	k.beats.Add(name)
	k.enqueueNode(name)
	return nil
}

// Nodes lists the names of the nodes and whether each is alive.
func (k *Kubelet) Nodes() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make(map[string]bool, len(k.nodes))
	for name, n := range k.nodes {
		all[name] = n.ready
	}
	return all
}

// sync takes one step in the life of one pod.
func (k *Kubelet) sync(ctx context.Context, key string) (time.Duration, error) {
	object, found, err := k.pods.GetByKey(key)
	if err != nil || !found {
		return 0, err
	}
	pod := object.(*v1.Pod)
	rules, life := k.attend(pod)
	if life == nil {
		return 0, nil
	}
	// A key is never handed to two workers, so the life is ours for the moment.
	step := rules.Next(pod, life, time.Now())
	if step.Status != nil {
		if err := k.write(ctx, pod, step.Status); err != nil {
			return 0, err
		}
	}
	if step.Delete {
		return step.After, k.remove(ctx, pod)
	}
	return step.After, nil
}

// attend finds the rules and the memory of a pod, or nothing when its node is
// dead or not ours.
func (k *Kubelet) attend(pod *v1.Pod) (Rules, *Life) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[pod.Spec.NodeName]
	if n == nil || !n.ready {
		return Rules{}, nil
	}
	life := k.lives[pod.UID]
	if life == nil {
		life = &Life{PodIP: pod.Status.PodIP}
		if life.PodIP == "" {
			life.PodIP = k.podIP()
		}
		k.lives[pod.UID] = life
	}
	return Rules{DefaultDuration: k.opts.DefaultDuration, HostIP: n.hostIP}, life
}

// podIP needs the lock. It goes through 10.128.0.0/9 and begins anew.
func (k *Kubelet) podIP() string {
	k.nextIP = (k.nextIP + 1) % (1 << 23)
	ip := k.nextIP | 10<<24 | 1<<23
	return fmt.Sprintf("%d.%d.%d.%d", ip>>24, ip>>16&255, ip>>8&255, ip&255)
}

// write patches the status as a kubelet does: by the difference, with the uid
// as a precondition and without a resourceVersion.
func (k *Kubelet) write(ctx context.Context, pod *v1.Pod, status *v1.PodStatus) error {
	before, err := json.Marshal(v1.Pod{Status: pod.Status})
	if err != nil {
		return err
	}
	after, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *status})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Pod{})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignoreGone(err)
}

func (k *Kubelet) remove(ctx context.Context, pod *v1.Pod) error {
	now := int64(0)
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	return ignoreGone(err)
}

// ignoreGone drops the errors that mean there is nothing left to do: the pod
// is gone, or its name belongs to another one now.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// beat renews the lease of one node and says when to come again.
func (k *Kubelet) beat(ctx context.Context, name string) (time.Duration, error) {
	k.mu.Lock()
	n := k.nodes[name]
	alive := n != nil && n.ready
	k.mu.Unlock()
	if !alive {
		return 0, nil
	}
	leases := k.client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	seconds := int32(4 * k.opts.Heartbeat / time.Second)
	wanted := lease(n.object, seconds, time.Now())
	patch, err := json.Marshal(map[string]any{"spec": wanted.Spec})
	if err != nil {
		return 0, err
	}
	_, err = leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, wanted, metav1.CreateOptions{})
	}
	return k.opts.Heartbeat, err
}

func (k *Kubelet) enqueue(pod *v1.Pod) { k.queue.Add(pod.Namespace + "/" + pod.Name) }

func (k *Kubelet) enqueueNode(name string) {
	for _, pod := range k.pods.onNode(name) {
		k.enqueue(pod)
	}
}

func (k *Kubelet) forget(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lives, uid)
}

func newQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 2*time.Second))
}

// work handles keys until the queue shuts down; a failed one comes again later.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string],
	handle func(context.Context, string) (time.Duration, error),
) {
	for {
		key, stop := queue.Get()
		if stop {
			return
		}
		after, err := handle(ctx, key)
		switch {
		case err != nil:
			queue.AddRateLimited(key)
		default:
			queue.Forget(key)
			if after > 0 {
				queue.AddAfter(key, after)
			}
		}
		queue.Done(key)
	}
}
