// Command mpi-operator runs the MPI operator's own controller outside a cluster.
//
// The project's binary listens on port 8080 of every interface, on a port that cannot be chosen, and insists on
// leader election. This one calls the same controller with neither, so that several copies run side by side.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	"github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	"github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		log.Fatalf("mpi-operator: %v", err)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	// The project's own defaults; a zero value would be a controller that may never work.
	opts := options.NewServerOption()
	opts.AddFlags(flag.NewFlagSet("defaults", flag.ContinueOnError))

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	mpi, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	// The controller writes events about MPIJobs.
	if err := mpischeme.AddToScheme(scheme.Scheme); err != nil {
		return err
	}

	core := informers.NewSharedInformerFactory(kube, 0)
	jobs := externalversions.NewSharedInformerFactory(mpi, 0)
	// Neither a Volcano nor a scheduler-plugins client: they serve gang schedulers, which the options leave off.
	operator, err := controller.NewMPIJobController(ctx, kube, mpi, nil, nil,
		core.Core().V1().ConfigMaps(),
		core.Core().V1().Secrets(),
		core.Core().V1().Services(),
		core.Batch().V1().Jobs(),
		core.Core().V1().Pods(),
		core.Scheduling().V1().PriorityClasses(),
		jobs.Kubeflow().V2beta1().MPIJobs(),
		opts)
	if err != nil {
		return err
	}
	core.Start(ctx.Done())
	jobs.Start(ctx.Done())
	return operator.Run(opts.Threadiness, ctx.Done())
}
