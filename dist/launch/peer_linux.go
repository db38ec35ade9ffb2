package launch

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/symgrad/symgrad/dist"
)

// peerChecked reports whether checkPeer can identify the user at the other end of a unix socket.
const peerChecked = true

// checkPeer rejects the other end of a unix socket unless it is a process of this user: any user of
// the host may dial an abstract name, or take it first. Other connections pass.
func checkPeer(conn net.Conn) error {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return fmt.Errorf("peer of %s: %w", conn.LocalAddr(), err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = credErr
	}
	if err != nil {
		return fmt.Errorf("peer of %s: %w", conn.LocalAddr(), err)
	}
	return checkUID(int(cred.Uid), os.Getuid())
}

func checkUID(peer, own int) error {
	if peer != own {
		return fmt.Errorf("the process at the other end belongs to user %d, not %d: %w", peer, own, dist.ErrInvalid)
	}
	return nil
}
