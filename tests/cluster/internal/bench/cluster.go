package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"tidegate.dev/tests/cluster/internal/kubelet"
	"tidegate.dev/tests/cluster/internal/pki"
	"tidegate.dev/tests/cluster/internal/ports"
	"tidegate.dev/tests/cluster/internal/process"
)

const (
	etcdName       = "etcd"
	apiserverName  = "kube-apiserver"
	controllerName = "kube-controller-manager"
	schedulerName  = "kube-scheduler"
)

var componentNames = []string{etcdName, apiserverName, controllerName, schedulerName}

func known(component string) bool { return slices.Contains(componentNames, component) }

// frontProxyName is the one client that may speak for others to aggregated APIs.
const frontProxyName = "front-proxy-client"

// controllers leaves out what fake nodes have no use for: volumes, autoscaling
// and certificate requests.
var controllers = []string{
	"garbage-collector", "namespace", "serviceaccount", "serviceaccount-token", "root-ca-certificate-publisher",
	"job", "cronjob", "replicaset", "deployment", "statefulset", "daemonset", "resourcequota",
	"ttl-after-finished", "pod-garbage-collector", "node-lifecycle", "taint-eviction",
	"clusterrole-aggregation", "endpointslice", "disruption", "validatingadmissionpolicy-status",
}

// auditPolicy logs each request once, when it ends. Bodies are kept for the
// one write that matters to us, the PATCH of a pod; heartbeats are left out.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*"]
- level: None
  namespaces: [kube-node-lease]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Request
  verbs: [patch]
  resources: [{group: "", resources: [pods]}]
- level: Metadata
`

// A cluster is one API server with its controllers, its scheduler and its fake nodes.
type cluster struct {
	number     int
	dir        string
	port       ports.Port
	components map[string]*process.Component
	admin      *rest.Config
	client     kubernetes.Interface
	kubelet    *kubelet.Kubelet
}

func newCluster(o Options, number int, etcd string) (*cluster, error) {
	port, err := ports.Reserve()
	if err != nil {
		return nil, err
	}
	c := &cluster{
		number:     number,
		dir:        filepath.Join(o.Dir, fmt.Sprintf("cluster-%d", number)),
		port:       port,
		components: map[string]*process.Component{},
	}
	if err := os.MkdirAll(c.pki(), 0o755); err != nil {
		return nil, err
	}
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	c.add(o, apiserverName, c.apiserverArgs(etcd))
	c.add(o, controllerName, c.controllerArgs())
	c.add(o, schedulerName, []string{
		"--kubeconfig=" + c.path("scheduler.kubeconfig"),
		"--authentication-kubeconfig=" + c.path("scheduler.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	})
	return c, c.connect(o)
}

func (c *cluster) add(o Options, name string, args []string) {
	component := process.New(name, c.path(name+".log"), args...)
	component.SetExtra(o.Extra[name])
	c.components[name] = component
}

func (c *cluster) apiserverArgs(etcd string) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--etcd-prefix=" + c.prefix(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.port.Number),
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + c.pki("apiserver.crt"),
		"--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki("service-account.crt"),
		"--service-account-signing-key-file=" + c.pki("service-account.key"),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--allow-privileged=true",
		"--enable-aggregator-routing=false",
		"--requestheader-client-ca-file=" + c.pki("ca.crt"),
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki(frontProxyName+".crt"),
		"--proxy-client-key-file=" + c.pki(frontProxyName+".key"),
		"--audit-policy-file=" + c.path("audit-policy.yaml"),
		"--audit-log-path=" + c.path("audit.log"),
		// Whoever counts writes reads one file from its start.
		"--audit-log-maxsize=100000",
	}
}

func (c *cluster) controllerArgs() []string {
	return []string{
		"--kubeconfig=" + c.path("controller-manager.kubeconfig"),
		"--authentication-kubeconfig=" + c.path("controller-manager.kubeconfig"),
		"--authorization-kubeconfig=" + c.path("controller-manager.kubeconfig"),
		"--service-account-private-key-file=" + c.pki("service-account.key"),
		"--root-ca-file=" + c.pki("ca.crt"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		"--controllers=" + strings.Join(controllers, "-controller,") + "-controller",
	}
}

// writeFiles makes all that the components read.
func (c *cluster) writeFiles() error {
	ca, err := pki.NewAuthority("tidegate-test-ca")
	if err != nil {
		return err
	}
	server, err := ca.Server("localhost", "127.0.0.1", "10.96.0.1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	keys, err := pki.ServiceAccountKeys()
	if err != nil {
		return err
	}
	proxy, err := ca.Client(frontProxyName)
	if err != nil {
		return err
	}
	for name, pair := range map[string]pki.Pair{
		"ca": ca.Pair, "apiserver": server, "service-account": keys, frontProxyName: proxy,
	} {
		if err := pair.Write(c.pki(), name); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.path("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	return c.writeUsers(ca)
}

func (c *cluster) writeUsers(ca *pki.Authority) error {
	users := []struct {
		file, name string
		groups     []string
	}{
		{"kubeconfig", "kubernetes-admin", []string{"system:masters"}},
		{"controller-manager.kubeconfig", "system:kube-controller-manager", nil},
		{"scheduler.kubeconfig", "system:kube-scheduler", nil},
		// Of the group that real kubelets are in; the other one stands in for the node authorizer.
		{"kubelet.kubeconfig", "system:node:fake", []string{"system:nodes", "system:masters"}},
	}
	for _, u := range users {
		pair, err := ca.Client(u.name, u.groups...)
		if err != nil {
			return err
		}
		if err := clientcmd.WriteToFile(*c.kubeconfig(u.name, ca.Cert, pair), c.path(u.file)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) kubeconfig(user string, ca []byte, pair pki.Pair) *api.Config {
	name := fmt.Sprintf("tidegate-%d", c.number)
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: c.url(), CertificateAuthorityData: ca}
	config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user, Namespace: "default"}
	config.CurrentContext = name
	return config
}

// start brings the cluster up on a running etcd.
func (c *cluster) start(ctx context.Context, o Options) error {
	if err := c.components[apiserverName].Start(); err != nil {
		return err
	}
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	for _, name := range []string{controllerName, schedulerName} {
		if err := c.components[name].Start(); err != nil {
			return err
		}
	}
	go c.kubelet.Run(ctx)
	if err := c.kubelet.AddNodes(ctx, o.nodes()...); err != nil {
		return err
	}
	if err := c.waitFor(ctx, controllerName, "the default service account", c.accountExists); err != nil {
		return err
	}
	return c.waitFor(ctx, controllerName, "all nodes to be ready", c.nodesReady)
}

// connect makes the clients, which do not call anybody yet.
func (c *cluster) connect(o Options) (err error) {
	if c.admin, err = clientcmd.BuildConfigFromFlags("", c.path("kubeconfig")); err != nil {
		return err
	}
	c.admin.QPS = -1
	c.admin.UserAgent = "tgcluster"
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.path("kubelet.kubeconfig"))
	if err != nil {
		return err
	}
	c.kubelet, err = kubelet.New(config, o.Kubelet)
	return err
}

func (c *cluster) waitReady(ctx context.Context) error {
	return c.waitFor(ctx, apiserverName, "the API server to be ready", c.apiserverReady)
}

func (c *cluster) apiserverReady(ctx context.Context) error {
	return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func (c *cluster) accountExists(ctx context.Context) error {
	_, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

func (c *cluster) nodesReady(ctx context.Context) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		for _, taint := range n.Spec.Taints {
			if taint.Key == v1.TaintNodeNotReady {
				return fmt.Errorf("node %s still has the taint %s", n.Name, taint.Key)
			}
		}
	}
	return nil
}

// waitFor polls a condition and, past the bound, blames a component.
func (c *cluster) waitFor(ctx context.Context, component, what string, check func(context.Context) error) error {
	blamed := c.components[component]
	before := blamed.Status().Restarts
	err := poll(ctx, func(ctx context.Context) error {
		if ends := blamed.Status().Restarts - before; ends > maxEnds {
			return hopeless{fmt.Errorf("%s ended %d times", component, ends)}
		}
		return check(ctx)
	})
	if err != nil {
		return fmt.Errorf("cluster %d: waited for %s: %w\n--- end of %s:\n%s", c.number, what, err, blamed.Log, blamed.Tail(30))
	}
	return nil
}

// checkComponent waits until a component that was started again does its work,
// as far as it can be asked: without a port of their own the controller
// manager and the scheduler only run or not.
func (c *cluster) checkComponent(ctx context.Context, name string) error {
	if name == apiserverName {
		return c.waitReady(ctx)
	}
	return nil
}

func (c *cluster) prefix() string { return fmt.Sprintf("/cluster-%d", c.number) }

func (c *cluster) url() string { return "https://" + c.port.Address() }

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) pki(name ...string) string {
	return filepath.Join(append([]string{c.dir, "pki"}, name...)...)
}

const (
	readyBound   = 60 * time.Second
	pollInterval = 20 * time.Millisecond
	// A component that ends more often than this while it starts will not get better.
	maxEnds = 2
)

// A hopeless error ends a poll at once.
type hopeless struct{ error }

// poll tries until the check succeeds, and tells its last error past the bound.
func poll(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	last := fmt.Errorf("no try finished")
	for {
		err := check(ctx)
		if err == nil || errors.As(err, &hopeless{}) {
			return err
		}
		if ctx.Err() == nil || apierrors.IsNotFound(err) {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", last, ctx.Err())
		case <-ticker.C:
		}
	}
}

func etcdHealthy(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("health: %s", response.Status)
		}
		return nil
	}
}
