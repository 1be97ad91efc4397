// Package ports hands out TCP ports on loopback that stay ours while this
// process lives, even while nothing listens on them (a killed API server must
// find its port again).
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The range lies below Linux's default ephemeral range, so that no outgoing
// connection takes a port whose owner is being restarted.
const (
	first = 20000
	last  = 31999
	tries = 2000
)

// A Port is a reserved port. Other processes that use this package do not
// choose it until Release is called or the process ends.
type Port struct {
	Number int
	lock   net.Listener
}

// Reserve finds a free port. The reservation is an abstract Unix socket: it
// has the same scope as the port (the network namespace), and the kernel drops
// it with the process.
func Reserve() (Port, error) {
	for range tries {
		number := first + rand.IntN(last-first+1)
		lock, err := net.Listen("unix", fmt.Sprintf("@tidegate-port-%d", number))
		if err != nil {
			continue
		}
		if free(number) {
			return Port{Number: number, lock: lock}, nil
		}
		lock.Close()
	}
	return Port{}, errors.New("no free port between 20000 and 31999")
}

// Release gives the port back.
func (p Port) Release() { p.lock.Close() }

// Address is the port on loopback.
func (p Port) Address() string { return fmt.Sprintf("127.0.0.1:%d", p.Number) }

func free(number int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", number))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
