package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"tidegate.dev/tests/cluster/internal/process"
)

// show prints what GET /status answered, for people or for machines.
func show(out io.Writer, format string, answer []byte) error {
	switch format {
	case "json":
		var indented bytes.Buffer
		if err := json.Indent(&indented, answer, "", "  "); err != nil {
			return err
		}
		_, err := indented.WriteTo(out)
		return err
	case "table":
		var s State
		if err := json.Unmarshal(answer, &s); err != nil {
			return err
		}
		return s.table(out)
	default:
		return fmt.Errorf("-o wants table or json, not %q", format)
	}
}

// table has one row a cluster.
func (s State) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tETCD\tAPISERVER\tCONTROLLER-MANAGER\tSCHEDULER\tNODES READY\tKUBECONFIG")
	for _, c := range s.Clusters {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Number, word(s.Etcd.Status),
			word(c.Components[apiserverName]), word(c.Components[controllerName]),
			word(c.Components[schedulerName]), c.readyNodes(), c.Kubeconfig)
	}
	return w.Flush()
}

// word says whether a component runs, and how often it ended by itself.
func word(s process.Status) string {
	state := "down"
	if s.Running {
		state = "running"
	}
	if s.Restarts > 0 {
		state = fmt.Sprintf("%s (%d restarts)", state, s.Restarts)
	}
	return state
}

func (c ClusterState) readyNodes() string {
	ready := 0
	for _, is := range c.Nodes {
		if is {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(c.Nodes))
}
