package bench

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Commands are tgcluster's own, by name.
var Commands = map[string]func(args []string) error{
	"up":     Up,
	"status": status,
	"down":   down,
}

// ErrNotRunning says that there is nobody to talk to.
var ErrNotRunning = errors.New("no cluster runs")

func status(args []string) error {
	set, dir := flags("status")
	output := set.String("o", "table", "table or json")
	if err := parseDir(set, dir, args); err != nil {
		return err
	}
	var answer bytes.Buffer
	if err := request(*dir, http.MethodGet, "/status", &answer); err != nil {
		return err
	}
	return show(os.Stdout, *output, answer.Bytes())
}

// down returns when the supervisor is gone.
func down(args []string) error {
	set, dir := flags("down")
	if err := parseDir(set, dir, args); err != nil {
		return err
	}
	if err := request(*dir, http.MethodPost, "/down", io.Discard); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return poll(ctx, func(context.Context) error {
		if running(*dir) {
			return fmt.Errorf("the cluster in %s still runs", *dir)
		}
		return nil
	})
}

// flags of a command that talks to a running cluster.
func flags(command string) (set *flag.FlagSet, dir *string) {
	set = flag.NewFlagSet("tgcluster "+command, flag.ContinueOnError)
	return set, set.String("dir", "", "directory of the cluster")
}

func parseDir(set *flag.FlagSet, dir *string, args []string) (err error) {
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", set.Arg(0))
	}
	*dir, err = absolute(*dir)
	return err
}

// running asks the control socket of a directory: it is there before anything
// is started and goes when everything has stopped.
func running(dir string) bool {
	connection, err := net.Dial("unix", filepath.Join(dir, socketFile))
	if err != nil {
		return false
	}
	connection.Close()
	return true
}

func request(dir, method, path string, out io.Writer) error {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, socketFile))
		},
	}}
	r, err := http.NewRequest(method, "http://tgcluster"+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("%w in %s: %w", ErrNotRunning, dir, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	_, err = io.Copy(out, response.Body)
	return err
}
