//go:build !linux

package launch

import "net"

// peerChecked tells whether checkPeer can tell who is at the other end of a unix socket.
const peerChecked = false

func checkPeer(net.Conn) error { return nil }
