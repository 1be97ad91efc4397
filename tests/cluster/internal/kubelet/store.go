package kubelet

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// byNode is the index by the node that a pod is bound to.
const byNode = "node"

// A podStore holds the bound pods and says what changed. It stands where an
// informer would, whose patience after a failure (30 s) no test has.
type podStore struct {
	cache.Indexer
	changed func(*v1.Pod)
	gone    func(types.UID)
}

func newPodStore(changed func(*v1.Pod), gone func(types.UID)) *podStore {
	nodeOf := func(o any) ([]string, error) { return []string{o.(*v1.Pod).Spec.NodeName}, nil }
	return &podStore{
		Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byNode: nodeOf}),
		changed: changed,
		gone:    gone,
	}
}

// reflector fills the store. Pods that wait for a node are left out by the
// server, so that they cost us nothing.
func (s *podStore) reflector(client kubernetes.Interface) *cache.Reflector {
	bound := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}
	pods := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "pods", v1.NamespaceAll, bound)
	return cache.NewReflectorWithOptions(pods, &v1.Pod{}, s, cache.ReflectorOptions{
		Name:    "bound pods",
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Cap: time.Second, Steps: 5, Factor: 2, Jitter: 0.2},
	})
}

// onNode lists the pods bound to a node.
func (s *podStore) onNode(name string) []*v1.Pod {
	objects, err := s.ByIndex(byNode, name)
	if err != nil {
		// Only an unknown index fails.
		panic(err)
	}
	pods := make([]*v1.Pod, 0, len(objects))
	for _, o := range objects {
		pods = append(pods, o.(*v1.Pod))
	}
	return pods
}

// Add, Update, Delete and Replace are called by the reflector.
func (s *podStore) Add(object any) error {
	pod := object.(*v1.Pod)
	pod.ManagedFields = nil
	if err := s.Indexer.Add(pod); err != nil {
		return err
	}
	s.changed(pod)
	return nil
}

func (s *podStore) Update(object any) error { return s.Add(object) }

func (s *podStore) Delete(object any) error {
	s.gone(object.(*v1.Pod).UID)
	return s.Indexer.Delete(object)
}

func (s *podStore) Replace(objects []any, version string) error {
	before := map[types.UID]bool{}
	for _, o := range s.List() {
		before[o.(*v1.Pod).UID] = true
	}
	if err := s.Indexer.Replace(objects, version); err != nil {
		return err
	}
	for _, o := range objects {
		pod := o.(*v1.Pod)
		delete(before, pod.UID)
		s.changed(pod)
	}
	for uid := range before {
		s.gone(uid)
	}
	return nil
}
