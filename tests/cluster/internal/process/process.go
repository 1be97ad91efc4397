// Package process runs the components of a cluster as children that cannot
// outlive their parent.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// restartDelay keeps a component that fails at once from filling the disk.
const restartDelay = 500 * time.Millisecond

// A Component is one program of the control plane. It is started again when it
// ends by itself, as a kubelet would; after Kill or Stop it stays down.
type Component struct {
	Name string
	Log  string
	args []string

	mu       sync.Mutex
	extra    []string
	wanted   bool
	restarts int
	run      *run
}

// A run is one life of the component's process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Status is what the control API tells about a component.
type Status struct {
	Running  bool `json:"running"`
	PID      int  `json:"pid,omitempty"`
	Restarts int  `json:"restarts"`
}

// New describes a component; args come before what Start's caller adds.
func New(name, log string, args ...string) *Component {
	return &Component{Name: name, Log: log, args: args}
}

// SetExtra replaces the arguments that follow the fixed ones, from the next start on.
func (c *Component) SetExtra(extra []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.extra = extra
}

// Status reads the present state.
func (c *Component) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Running: c.run != nil, Restarts: c.restarts}
	if c.run != nil {
		s.PID = c.run.cmd.Process.Pid
	}
	return s
}

// Start starts the component unless it runs.
func (c *Component) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	if c.run != nil {
		return nil
	}
	return c.launch()
}

// Kill ends the component at once and waits for its end.
func (c *Component) Kill() {
	if r := c.unwant(); r != nil {
		r.signal(syscall.SIGKILL)
		<-r.done
	}
}

// Stop asks the component to end and kills it after the bound.
func (c *Component) Stop(bound time.Duration) {
	r := c.unwant()
	if r == nil {
		return
	}
	r.signal(syscall.SIGTERM)
	select {
	case <-r.done:
	case <-time.After(bound):
		r.signal(syscall.SIGKILL)
		<-r.done
	}
}

// Tail is the end of the component's log, for error messages.
func (c *Component) Tail(lines int) string {
	text, err := os.ReadFile(c.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (c *Component) unwant() *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = false
	return c.run
}

// launch needs the lock.
func (c *Component) launch() error {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	// The child has its own copy of the descriptor.
	defer log.Close()
	argv := append([]string{c.Name}, c.args...)
	cmd := &exec.Cmd{
		// Our own image, even when the file was replaced meanwhile.
		Path:   "/proc/self/exe",
		Args:   append(argv, c.extra...),
		Stdout: log,
		Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{
			// A group of its own: Ctrl-C reaches the supervisor alone, which stops in order.
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL,
		},
	}
	if err := onSpawner(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	c.run = r
	go c.reap(r)
	return nil
}

func (c *Component) reap(r *run) {
	err := r.cmd.Wait()
	c.mu.Lock()
	c.run = nil
	again := c.wanted
	if again {
		c.restarts++
	}
	c.mu.Unlock()
	close(r.done)
	if !again {
		return
	}
	fmt.Fprintf(os.Stderr, "%s ended by itself (%v), starting it again; its log: %s\n", c.Name, err, c.Log)
	time.Sleep(restartDelay)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted && c.run == nil {
		if err := c.launch(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func (r *run) signal(s os.Signal) {
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintf(os.Stderr, "signal %d: %v\n", r.cmd.Process.Pid, err)
	}
}

var spawner = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// onSpawner runs f on a thread that never ends: the kernel sends the parent
// death signal when the thread that forked goes, not the process.
func onSpawner(f func() error) error {
	result := make(chan error, 1)
	spawner() <- func() { result <- f() }
	return <-result
}
