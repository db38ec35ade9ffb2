//go:build !linux

package launch

import "net"

// peerChecked reports whether checkPeer can identify the user at the other end of a unix socket.
const peerChecked = false

func checkPeer(net.Conn) error { return nil }
