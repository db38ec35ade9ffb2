package launch

import (
	"errors"
	"fmt"
	"net"
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

// abstract reports whether address names an abstract unix socket.
func abstract(address string) bool { return strings.HasPrefix(address, "@") }

// network is the network that address belongs to, as package net names it.
func network(address string) string {
	if abstract(address) {
		return "unix"
	}
	return "tcp"
}

// listen opens address, "" being a free port of the loopback interface.
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
		return nil, fmt.Errorf("store address %s is in use: this process meets again before it has closed what it got, "+
			"or another job of this user has the same id; set %s to tell them apart: %w", address, jobVar, err)
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("store address %s is in use: choose another port (--master, launch.master, MASTER_PORT), "+
			"or leave --master and launch.master empty for a free one: %w", address, err)
	default:
		return nil, fmt.Errorf("store address %s: %w", address, err)
	}
}

// dialable is the address at which this host reaches a server that listens on address. One that listens on all interfaces
// does so for IPv4 and IPv6, as package net has it, and on the loopback interface too.
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
