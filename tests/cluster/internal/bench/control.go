package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"tidegate.dev/tests/cluster/internal/kubelet"
	"tidegate.dev/tests/cluster/internal/process"
)

const socketFile = "control.sock"

// Linux allows 107 bytes in the path of a socket.
const longestSocket = 107

// listen serves the control API. Every request is answered when its work is
// done: killed means gone, started means ready.
func (b *bench) listen(ctx context.Context) (*http.Server, error) {
	path := b.path(socketFile)
	if len(path) > longestSocket {
		return nil, fmt.Errorf("the path of the control socket is longer than %d bytes: %s", longestSocket, path)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { reply(w, b.state(), nil) })
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, struct{}{}, nil)
		b.quit()
	})
	mux.HandleFunc("POST /clusters/{cluster}/components/{name}/{verb}", b.handle(b.component))
	mux.HandleFunc("POST /clusters/{cluster}/nodes", b.handle(b.addNode))
	mux.HandleFunc("DELETE /clusters/{cluster}/nodes/{node}", b.handle(
		func(r *http.Request, c *cluster) error { return c.kubelet.RemoveNode(r.Context(), r.PathValue("node")) }))
	mux.HandleFunc("POST /clusters/{cluster}/nodes/{node}/{verb}", b.handle(b.nodeCondition))
	server := &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			b.say("control socket: %v", err)
			b.quit()
		}
	}()
	return server, nil
}

var errNotFound = errors.New("not found")

func (b *bench) handle(do func(*http.Request, *cluster) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.Atoi(r.PathValue("cluster"))
		if err != nil || number < 1 || number > len(b.clusters) {
			reply(w, nil, fmt.Errorf("cluster %q: %w", r.PathValue("cluster"), errNotFound))
			return
		}
		c := b.clusters[number-1]
		err = do(r, c)
		reply(w, c.state(), err)
	}
}

// component handles kill, stop, start and restart. The body may hold
// {"extra": ["--flag=value"]}, which replaces the extra arguments.
func (b *bench) component(r *http.Request, c *cluster) error {
	name := r.PathValue("name")
	p := c.components[name]
	check := func(ctx context.Context) error { return c.checkComponent(ctx, name) }
	if name == etcdName {
		p, check = b.etcd, b.waitEtcd
	}
	if p == nil {
		return fmt.Errorf("component %q: %w", name, errNotFound)
	}
	var body struct {
		Extra *[]string `json:"extra"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	if body.Extra != nil {
		p.SetExtra(*body.Extra)
	}
	if err := act(p, r.PathValue("verb")); err != nil {
		return err
	}
	if p.Status().Running {
		if err := check(r.Context()); err != nil {
			return err
		}
	}
	return b.writeState()
}

func act(p *process.Component, verb string) error {
	switch verb {
	case "kill":
		p.Kill()
	case "stop":
		p.Stop(stopBound)
	case "start":
		return p.Start()
	case "restart":
		p.Stop(stopBound)
		return p.Start()
	default:
		return fmt.Errorf("verb %q: %w", verb, errNotFound)
	}
	return nil
}

func (b *bench) addNode(r *http.Request, c *cluster) error {
	// What the body leaves out is as in the nodes that were there from the start.
	spec := kubelet.NodeSpec{CPU: b.options.Node.CPU, Memory: b.options.Node.Memory, Pods: b.options.Node.Pods}
	if err := decode(r, &spec); err != nil {
		return err
	}
	if spec.Name == "" {
		return errors.New("the node has no name")
	}
	return c.kubelet.AddNodes(r.Context(), spec)
}

// nodeCondition handles ready and notready; the body may hold
// {"condition": "False"} in place of Unknown.
func (b *bench) nodeCondition(r *http.Request, c *cluster) error {
	body := struct {
		Condition v1.ConditionStatus `json:"condition"`
	}{v1.ConditionUnknown}
	if err := decode(r, &body); err != nil {
		return err
	}
	switch r.PathValue("verb") {
	case "ready":
		body.Condition = v1.ConditionTrue
	case "notready":
	default:
		return fmt.Errorf("verb %q: %w", r.PathValue("verb"), errNotFound)
	}
	return c.kubelet.SetReady(r.Context(), r.PathValue("node"), body.Condition)
}

// decode reads a JSON body, which may be missing.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

func reply(w http.ResponseWriter, body any, err error) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case errors.Is(err, errNotFound):
		w.WriteHeader(http.StatusNotFound)
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
	}
	if err != nil {
		body = map[string]string{"error": err.Error()}
	}
	// The client may be gone; nothing to do then.
	_ = json.NewEncoder(w).Encode(body)
}
