// Package bench runs whole clusters: one etcd, and for each cluster an API
// server, a controller manager, a scheduler and fake nodes.
package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"tidegate.dev/tests/cluster/internal/ports"
	"tidegate.dev/tests/cluster/internal/process"
)

// marker tells our directories from others: only those are ever emptied.
const marker = ".tgcluster"

const stopBound = 15 * time.Second

// A bench is everything that one `tgcluster up` runs.
type bench struct {
	options  Options
	etcd     *process.Component
	etcdURL  string
	clusters []*cluster
	quit     context.CancelFunc
	began    time.Time
	// writing is held while state.json is replaced.
	writing sync.Mutex
}

// Up runs `tgcluster up` until a signal, the control API or the end of stdin.
func Up(args []string) (err error) {
	options, err := parse(args)
	if err != nil {
		return err
	}
	ctx, quit := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer quit()
	b := &bench{options: options, quit: quit, began: time.Now()}
	if err := prepare(options.Dir); err != nil {
		return err
	}
	if err := b.build(); err != nil {
		return err
	}
	server, err := b.listen(ctx)
	if err != nil {
		return err
	}
	defer server.Close()
	defer func() { err = errors.Join(err, b.stop()) }()
	if options.UntilStdinCloses {
		go b.quitAtEndOf(os.Stdin)
	}
	if err := b.start(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("told to stop before it was ready")
		}
		return err
	}
	b.say("ready after %.1f s", time.Since(b.began).Seconds())
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// prepare makes an empty directory, or empties one that an earlier run left.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if running(dir) {
		return fmt.Errorf("a cluster runs in %s already; stop it with `tgcluster down --dir %s`", dir, dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s is neither empty nor from an earlier run", dir)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, marker), nil, 0o644)
}

func (b *bench) start(ctx context.Context) error {
	if err := b.etcd.Start(); err != nil {
		return err
	}
	if err := b.waitEtcd(ctx); err != nil {
		return err
	}
	b.say("etcd answers")
	results := make([]error, len(b.clusters))
	var wg sync.WaitGroup
	for i, c := range b.clusters {
		wg.Go(func() {
			if results[i] = c.start(ctx, b.options); results[i] == nil {
				b.say("cluster %d is up at %s", c.number, c.url())
			}
		})
	}
	wg.Wait()
	if err := errors.Join(results...); err != nil {
		return err
	}
	return b.writeState()
}

// build describes etcd and the clusters, without starting anything.
func (b *bench) build() error {
	client, err := ports.Reserve()
	if err != nil {
		return err
	}
	peer, err := ports.Reserve()
	if err != nil {
		return err
	}
	b.etcdURL = "http://" + client.Address()
	peerURL := "http://" + peer.Address()
	b.etcd = process.New(etcdName, filepath.Join(b.options.Dir, "etcd.log"),
		"--name=tidegate",
		"--data-dir="+filepath.Join(b.options.Dir, "etcd"),
		"--listen-client-urls="+b.etcdURL,
		"--advertise-client-urls="+b.etcdURL,
		"--listen-peer-urls="+peerURL,
		"--initial-advertise-peer-urls="+peerURL,
		"--initial-cluster=tidegate="+peerURL,
		// Test data need not survive the machine.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		// One member has nobody to wait for.
		"--heartbeat-interval=20",
		"--election-timeout=200",
		"--log-level=warn",
	)
	b.etcd.SetExtra(b.options.Extra[etcdName])
	for i := range b.options.Clusters {
		c, err := newCluster(b.options, i+1, b.etcdURL)
		if err != nil {
			return err
		}
		b.clusters = append(b.clusters, c)
	}
	return nil
}

func (b *bench) waitEtcd(ctx context.Context) error {
	if err := poll(ctx, etcdHealthy(b.etcdURL)); err != nil {
		return fmt.Errorf("waited for etcd: %w\n--- end of %s:\n%s", err, b.etcd.Log, b.etcd.Tail(30))
	}
	return nil
}

// stop ends everything: clients before servers, etcd last. Without etcd an API
// server ignores SIGTERM for minutes.
func (b *bench) stop() error {
	if b.options.RemoveDir {
		b.kill()
		return os.RemoveAll(b.options.Dir)
	}
	for _, name := range []string{schedulerName, controllerName, apiserverName} {
		var wg sync.WaitGroup
		for _, c := range b.clusters {
			wg.Go(func() { c.components[name].Stop(stopBound) })
		}
		wg.Wait()
	}
	b.etcd.Stop(stopBound)
	b.say("stopped")
	return errors.Join(remove(b.path(stateFile)), remove(b.path(socketFile)))
}

func (b *bench) kill() {
	b.etcd.Kill()
	for _, c := range b.clusters {
		for _, component := range c.components {
			component.Kill()
		}
	}
}

func (b *bench) quitAtEndOf(r io.Reader) {
	// Errors mean the end too.
	_, _ = io.Copy(io.Discard, bufio.NewReader(r))
	b.quit()
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%5.1f s] %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) path(name string) string { return filepath.Join(b.options.Dir, name) }

// writeState leaves what scripts need in a file, complete or not at all.
func (b *bench) writeState() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	text, err := json.MarshalIndent(b.state(), "", "  ")
	if err != nil {
		return err
	}
	temporary := b.path(stateFile + ".new")
	if err := os.WriteFile(temporary, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, b.path(stateFile))
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
