// Command tgcluster is a whole Kubernetes control plane in one binary.
//
// The component is named by the first argument or, so that symlinks can stand
// in for the upstream programs, by the base name of the program itself.
// `tgcluster up` runs several of them together, with fake nodes, as a cluster
// that needs neither containers nor root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"tidegate.dev/tests/cluster/internal/bench"
)

// components builds only the command that was asked for: two of them in one
// process fight over the signal handler, configz and the feature gates.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

const usage = `usage: tgcluster up|status|down [FLAG...]
       tgcluster etcd|kube-apiserver|kube-controller-manager|kube-scheduler [FLAG...]
`

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	switch {
	case name == "etcd":
		etcdmain.Main(os.Args)
	case components[name] != nil:
		os.Exit(cli.Run(components[name]()))
	case bench.Commands[name] != nil:
		os.Exit(exitCode(name, bench.Commands[name](os.Args[1:])))
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}

// exitCode tells what went wrong; 3 says that no cluster runs.
func exitCode(name string, err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "tgcluster %s: %v\n", name, err)
	if errors.Is(err, bench.ErrNotRunning) {
		return 3
	}
	return 1
}

func known(name string) bool {
	return name == "etcd" || components[name] != nil
}
