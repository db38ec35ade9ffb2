package launch

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/symgrad/symgrad/dist"
)

// validAddress reports whether address is host:port with a port that can be dialled.
func validAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, ok := parseNumber(port)
	return err == nil && host != "" && ok && n >= 1 && n <= 65535
}

// listenAll opens address and the socket files. If another user has taken the abstract name, the
// files suffice.
func listenAll(address string, files []string) (_ []net.Listener, err error) {
	var all []net.Listener
	defer func() {
		if err != nil {
			_ = closeAll(all) // err has the cause
		}
	}()
	for _, path := range files {
		l, err := listenFile(path)
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, inUse(path, err)
		}
		if err == nil { // else the folder is full or read-only; the abstract name remains
			all = append(all, l)
		}
	}
	l, err := listen(address)
	switch {
	case err == nil:
		return append([]net.Listener{l}, all...), nil
	case errors.Is(err, errForeign) && len(all) > 0:
		return all, nil
	default:
		return all, err
	}
}

// closeAll closes all listeners.
func closeAll(all []net.Listener) error {
	var errs []error
	for _, l := range all {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// errForeign is the error of a name that a process of another user has taken.
var errForeign = errors.New("another user has taken the name")

// inUse returns the error of a socket that a process of this user has.
func inUse(address string, err error) error {
	return fmt.Errorf("store address %s is in use: this process meets again before closing its store, "+
		"or another job of this user has the same id; set %s to tell them apart: %w", address, jobVar, err)
}

// abstract reports whether address names an abstract unix socket.
func abstract(address string) bool { return strings.HasPrefix(address, "@") }

// network returns package net's name for the network of address.
func network(address string) string {
	if abstract(address) || filepath.IsAbs(address) {
		return "unix"
	}
	return "tcp"
}

// listen opens address; "" is a free port of the loopback interface.
func listen(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	if abstract(address) && !peerChecked {
		return nil, fmt.Errorf("store address %s: abstract unix sockets need Linux: %w", address, dist.ErrUnsupported)
	}
	listener, err := net.Listen(network(address), address)
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRINUSE) && abstract(address):
		if other := holderOfName(address); other != nil {
			return nil, fmt.Errorf("store address %s: %w: %w; set %s to another id on all ranks, or give them a private XDG_RUNTIME_DIR: %w",
				address, errForeign, other, jobVar, err)
		}
		return nil, inUse(address, err)
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("store address %s is in use: choose another port (--master, launch.master, MASTER_PORT), "+
			"or leave --master and launch.master empty for a free one: %w", address, err)
	default:
		return nil, fmt.Errorf("store address %s: %w", address, err)
	}
}

// dialable returns the address at which this host reaches a server that listens on address. A
// server on all interfaces listens on IPv4 and IPv6, as package net does, and on the loopback
// interface too.
func dialable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// validListenAddress reports whether address is host:port; the host may be empty and the port 0.
func validListenAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	n, ok := parseNumber(port)
	return err == nil && ok && n <= 65535
}
