package bench

import (
	"os"

	"tidegate.dev/tests/cluster/internal/process"
)

const stateFile = "state.json"

// State is what state.json and GET /status tell.
type State struct {
	PID      int            `json:"pid"`
	Dir      string         `json:"dir"`
	Socket   string         `json:"socket"`
	Etcd     EtcdState      `json:"etcd"`
	Clusters []ClusterState `json:"clusters"`
}

// EtcdState describes the one etcd.
type EtcdState struct {
	process.Status
	URL string `json:"url"`
	Log string `json:"log"`
}

// ClusterState describes one cluster. The CA signs everything: serving and
// client certificates and the front proxy's.
type ClusterState struct {
	Number         int                       `json:"number"`
	URL            string                    `json:"url"`
	Port           int                       `json:"port"`
	EtcdPrefix     string                    `json:"etcdPrefix"`
	Kubeconfig     string                    `json:"kubeconfig"`
	AuditLog       string                    `json:"auditLog"`
	CA             string                    `json:"ca"`
	CAKey          string                    `json:"caKey"`
	FrontProxyCert string                    `json:"frontProxyCert"`
	FrontProxyKey  string                    `json:"frontProxyKey"`
	Components     map[string]process.Status `json:"components"`
	Nodes          map[string]bool           `json:"nodes"`
}

func (b *bench) state() State {
	s := State{
		PID: os.Getpid(), Dir: b.options.Dir, Socket: b.path(socketFile),
		Etcd: EtcdState{Status: b.etcd.Status(), URL: b.etcdURL, Log: b.etcd.Log},
	}
	for _, c := range b.clusters {
		s.Clusters = append(s.Clusters, c.state())
	}
	return s
}

func (c *cluster) state() ClusterState {
	s := ClusterState{
		Number:         c.number,
		URL:            c.url(),
		Port:           c.port.Number,
		EtcdPrefix:     c.prefix(),
		Kubeconfig:     c.path("kubeconfig"),
		AuditLog:       c.path("audit.log"),
		CA:             c.pki("ca.crt"),
		CAKey:          c.pki("ca.key"),
		FrontProxyCert: c.pki(frontProxyName + ".crt"),
		FrontProxyKey:  c.pki(frontProxyName + ".key"),
		Components:     map[string]process.Status{},
		Nodes:          c.kubelet.Nodes(),
	}
	for name, component := range c.components {
		s.Components[name] = component.Status()
	}
	return s
}
