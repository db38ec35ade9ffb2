package mpi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/symgrad/symgrad/internal/wire"
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
