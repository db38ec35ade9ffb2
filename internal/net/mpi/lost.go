package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// failure returns the error of a call for a request with peer, and notes a peer that is gone.
func (w *Wire) failure(code int32, err error, peer int) error {
	if err != nil {
		return fmt.Errorf("mpi: %w", err)
	}
	err = w.lib.requestError(code, peer)
	var gone *wire.PeerError
	if errors.As(err, &gone) {
		w.note(gone.Peer, gone.How)
	}
	return err
}

// note records that the library found peer gone.
func (w *Wire) note(peer int, how string) {
	if _, known := w.lost[peer]; !known {
		w.lost[peer] = how
		w.news = append(w.news, wire.PeerError{Peer: peer, How: how})
	}
}

// Lose implements wire.Wire. Messages that have arrived are still received.
func (w *Wire) Lose(peer int, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.lost[peer]; known || w.over {
		return
	}
	w.poll()
	w.lost[peer] = how
	w.sweep()
}

// sweep ends the requests with processes that are gone.
func (w *Wire) sweep() {
	w.posted = slices.DeleteFunc(w.posted, func(p posted) bool {
		how, gone := w.lost[p.peer]
		if gone {
			p.r.Finish(p.peer, 0, &wire.PeerError{Peer: p.peer, How: how})
		}
		return gone
	})
	for i, e := range w.table.entries {
		if how, gone := w.lost[e.peer]; gone {
			w.abandon(i, &wire.PeerError{Peer: e.peer, How: how})
		}
	}
	w.table.compact()
}

// abandon ends the request of entry i with an error. The memory of its message is kept, because
// the library may still use it.
func (w *Wire) abandon(i int, err error) {
	e := &w.table.entries[i]
	w.kept = append(w.kept, e.memory())
	e.end(0, err)
}

// failAll ends all requests with err.
func (w *Wire) failAll(err error) {
	for _, p := range w.posted {
		p.r.Finish(p.peer, 0, err)
	}
	w.posted = nil
	for i := range w.table.entries {
		w.abandon(i, err)
	}
	w.table.compact()
}

// ulfm has the functions of MPI's fault tolerance that name processes which are gone. Open MPI has
// them from 5.0 on; they work under "mpirun --with-ft ulfm".
type ulfm struct {
	ack       dl.Proc `dl:"MPIX_Comm_failure_ack,optional,since=5.0"`
	acked     dl.Proc `dl:"MPIX_Comm_failure_get_acked,optional,since=5.0"`
	group     dl.Proc `dl:"MPI_Comm_group"`
	groupSize dl.Proc `dl:"MPI_Group_size"`
	translate dl.Proc `dl:"MPI_Group_translate_ranks"`
	groupFree dl.Proc `dl:"MPI_Group_free"`
}

// probeFailed handles an error of MPI_Improbe. It notes the processes that are gone. Another error
// ends all requests, because no message can be received.
func (w *Wire) probeFailed(code int32, err error) {
	if err == nil {
		if class := w.lib.class(code); class != 0 && (class == w.lib.classes.failed || class == w.lib.classes.failedPending) {
			peers := w.failed()
			for _, peer := range peers {
				w.note(peer, w.lib.text(code))
			}
			if len(peers) > 0 {
				return
			}
		}
	}
	w.failAll(w.failure(code, err, wire.AnyPeer))
}

// failed returns the processes that the library has found gone, and acknowledges them, so that the
// library goes on probing for messages of the others.
func (w *Wire) failed() []int {
	l := w.lib
	if l.do("MPIX_Comm_failure_ack", l.ulfm.ack, w.comm) != nil {
		return nil
	}
	gone, all, n := make([]byte, 8), make([]byte, 8), new(int32)
	if l.do("MPIX_Comm_failure_get_acked", l.ulfm.acked, w.comm, uintptr(unsafe.Pointer(&gone[0]))) != nil ||
		l.do("MPI_Comm_group", l.ulfm.group, w.comm, uintptr(unsafe.Pointer(&all[0]))) != nil ||
		l.do("MPI_Group_size", l.ulfm.groupSize, l.word(gone), uintptr(unsafe.Pointer(n))) != nil || *n <= 0 {
		return nil
	}
	from, to := make([]int32, *n), make([]int32, *n)
	for i := range from {
		from[i] = int32(i)
	}
	err := l.do("MPI_Group_translate_ranks", l.ulfm.translate, l.word(gone), uintptr(*n),
		uintptr(unsafe.Pointer(&from[0])), l.word(all), uintptr(unsafe.Pointer(&to[0])))
	_ = l.do("MPI_Group_free", l.ulfm.groupFree, uintptr(unsafe.Pointer(&gone[0])))
	_ = l.do("MPI_Group_free", l.ulfm.groupFree, uintptr(unsafe.Pointer(&all[0])))
	if err != nil {
		return nil
	}
	peers := make([]int, 0, *n)
	for _, p := range to {
		peers = append(peers, int(p))
	}
	return peers
}

// word returns the handle in memory that the library has filled. MPICH's has 4 bytes.
func (l *library) word(handle []byte) uintptr {
	if l.handleBytes == 4 {
		return uintptr(binary.NativeEndian.Uint32(handle))
	}
	return uintptr(binary.NativeEndian.Uint64(handle))
}
