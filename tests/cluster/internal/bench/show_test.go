package bench

import (
	"encoding/json"
	"strings"
	"testing"

	"tidegate.dev/tests/cluster/internal/process"
)

func answer(t *testing.T) []byte {
	t.Helper()
	up := process.Status{Running: true, PID: 7}
	text, err := json.Marshal(State{
		Etcd: EtcdState{Status: up},
		Clusters: []ClusterState{{
			Number:     1,
			Kubeconfig: "/c/cluster-1/kubeconfig",
			Components: map[string]process.Status{
				apiserverName: up, controllerName: {Running: true, Restarts: 2}, schedulerName: {},
			},
			Nodes: map[string]bool{"node-1": true, "node-2": false},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestATableHasOneRowACluster(t *testing.T) {
	var out strings.Builder
	if err := show(&out, "table", answer(t)); err != nil {
		t.Fatal(err)
	}
	want := `CLUSTER   ETCD      APISERVER   CONTROLLER-MANAGER     SCHEDULER   NODES READY   KUBECONFIG
1         running   running     running (2 restarts)   down        1/2           /c/cluster-1/kubeconfig
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestJSONIsWhatWasAnswered(t *testing.T) {
	var out strings.Builder
	if err := show(&out, "json", answer(t)); err != nil {
		t.Fatal(err)
	}
	var s State
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil || s.Clusters[0].Number != 1 {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	if err := show(&strings.Builder{}, "yaml", answer(t)); err == nil {
		t.Error("it was taken")
	}
}
