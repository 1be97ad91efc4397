package bench

import (
	"context"
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

func status(args []string) error {
	dir, err := dirFlag("status", args)
	if err != nil {
		return err
	}
	return request(dir, http.MethodGet, "/status", os.Stdout)
}

// down returns when the supervisor is gone.
func down(args []string) error {
	dir, err := dirFlag("down", args)
	if err != nil {
		return err
	}
	if err := request(dir, http.MethodPost, "/down", io.Discard); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return poll(ctx, func(context.Context) error {
		if running(dir) {
			return fmt.Errorf("the cluster in %s still runs", dir)
		}
		return nil
	})
}

func dirFlag(command string, args []string) (string, error) {
	var o Options
	set := flag.NewFlagSet("tgcluster "+command, flag.ContinueOnError)
	set.StringVar(&o.Dir, "dir", "", "directory of the cluster")
	if err := set.Parse(args); err != nil {
		return "", err
	}
	return o.Dir, o.fixDir()
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
		return fmt.Errorf("no cluster runs in %s: %w", dir, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	_, err = io.Copy(out, response.Body)
	return err
}
