package bench

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"tidegate.dev/tests/cluster/internal/kubelet"
)

// Options of `tgcluster up`.
type Options struct {
	Dir              string
	Clusters         int
	Nodes            int
	Node             kubelet.NodeSpec
	Kubelet          kubelet.Options
	UntilStdinCloses bool
	// RemoveDir says that nobody wants the data: kill all at the end and delete it.
	RemoveDir bool
	// Extra arguments by component name.
	Extra map[string][]string
}

func parse(args []string) (Options, error) {
	o := Options{Node: kubelet.NodeSpec{Extended: map[string]string{}}, Extra: map[string][]string{}}
	set := flag.NewFlagSet("tgcluster up", flag.ContinueOnError)
	set.StringVar(&o.Dir, "dir", "", "directory for everything: data, logs, kubeconfigs, the control socket")
	set.IntVar(&o.Clusters, "clusters", 1, "number of clusters; they share one etcd")
	set.IntVar(&o.Nodes, "nodes", 4, "fake nodes in each cluster")
	set.StringVar(&o.Node.CPU, "node-cpu", "16", "cpu of a node")
	set.StringVar(&o.Node.Memory, "node-memory", "64Gi", "memory of a node")
	set.StringVar(&o.Node.Pods, "node-pods", "110", "pods that a node takes")
	gpus := set.String("node-gpus", "0", "nvidia.com/gpu of a node")
	set.DurationVar(&o.Kubelet.DefaultDuration, "default-duration", time.Second, "run time of pods of Jobs and of bare pods")
	set.DurationVar(&o.Kubelet.Heartbeat, "heartbeat", 10*time.Second, "time between two renewals of a node's lease")
	set.BoolVar(&o.UntilStdinCloses, "until-stdin-closes", false, "stop when standard input ends")
	set.BoolVar(&o.RemoveDir, "remove-dir", false, "kill everything and delete the directory at the end")
	set.Func("extra", "COMPONENT=ARGUMENT: one more argument for a component (may be repeated)", func(value string) error {
		name, argument, found := strings.Cut(value, "=")
		if !found || !known(name) {
			return fmt.Errorf("want COMPONENT=ARGUMENT, with one of %s", strings.Join(componentNames, ", "))
		}
		o.Extra[name] = append(o.Extra[name], argument)
		return nil
	})
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", set.Arg(0))
	}
	if *gpus != "0" {
		o.Node.Extended["nvidia.com/gpu"] = *gpus
	}
	if o.Clusters < 1 || o.Nodes < 0 {
		return o, fmt.Errorf("want at least one cluster and no negative number of nodes")
	}
	var err error
	o.Dir, err = absolute(o.Dir)
	return o, err
}

// nodes are those that each cluster begins with.
func (o *Options) nodes() []kubelet.NodeSpec {
	all := make([]kubelet.NodeSpec, o.Nodes)
	for i := range all {
		all[i] = o.Node
		all[i].Name = fmt.Sprintf("node-%d", i+1)
	}
	return all
}

// absolute gives the directory as the children and the tests see it, who look
// from elsewhere.
func absolute(dir string) (string, error) {
	if dir == "" {
		return "", fmt.Errorf("--dir is missing")
	}
	return filepath.Abs(dir)
}
