package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/wire"
)

// Place is where a rank of a job runs.
type Place struct {
	LocalRank int    // among the ranks of its host
	LocalSize int    // ranks on its host
	Node      int    // number of its host, in the order of first ranks
	Nodes     int    // hosts
	Job       string // of rank 0
}

// Tags of messages before the world exists: those of group 0, after channelControl.
const (
	tagHosts uint32 = iota + 1
	tagAsk
	tagAnswer
)

// hostBytes is the most bytes of a card's Host and Name, with a byte between them.
const hostBytes = 256

// Near opens the transport of the ranks of one host, which share store.
type Near func(ctx context.Context, rank, size int, store dist.Store) (dist.Transport, error)

// Card is the description of a process that the others receive.
type Card struct {
	Host string // id of its host; processes with one id can share memory
	Name string // of its host, for errors; cut if it is too long
	Job  string // id of the job; that of process 0 counts
}

// Join finds the hosts of all processes of a wire and opens their world. It takes the wire, also if
// it fails.
//
// Collective: all processes. Errors: those of near, of the wire and of Open; RankError of dist for
// a process that is gone; ctx's.
func Join(ctx context.Context, w wire.Wire, losses *Losses, own Card, near Near, cfg Config) (dist.Transport, Place, error) {
	t, place, err := join(ctx, w, losses, own, near, cfg)
	if err != nil {
		return nil, Place{}, fmt.Errorf("hosts: rank %d/%d: %w", w.Info().Rank, w.Info().Size, errors.Join(unopened(w, err), w.Close()))
	}
	return t, place, nil
}

// calm is the time in which all ranks notice that a world cannot be opened. UCX 1.13 aborts a
// process (an assertion in uct_tcp) if a peer leaves while the process connects with it. So a rank
// neither leaves nor makes progress before.
const calm = 200 * time.Millisecond

// unopened gives up the peers of a world that was not opened, so that Close does not wait for them.
//
// Returns: err, as a RankError of dist for the loss of a peer.
func unopened(w wire.Wire, err error) error {
	time.Sleep(calm)
	info := w.Info()
	for r := range info.Size {
		if r != info.Rank {
			w.Lose(r, "the world was not opened")
		}
	}
	var gone *wire.PeerError
	if errors.As(err, &gone) {
		return &dist.RankError{Rank: gone.Peer, How: gone.How}
	}
	return err
}

func join(ctx context.Context, w wire.Wire, losses *Losses, own Card, near Near, cfg Config) (dist.Transport, Place, error) {
	info := w.Info()
	cards, err := gatherHosts(ctx, w, own)
	if err != nil {
		return nil, Place{}, err
	}
	var order []string // ids
	hosts, names := make([]int, len(cards)), make([]string, len(cards))
	var local []int // ranks of this host
	for r, card := range cards {
		names[r] = card.Name
		h := slices.Index(order, card.Host)
		if h < 0 {
			h = len(order)
			order = append(order, card.Host)
		}
		if hosts[r] = h; card.Host == own.Host {
			local = append(local, r)
		}
	}
	place := Place{LocalRank: slices.Index(local, info.Rank), LocalSize: len(local), Node: hosts[info.Rank], Nodes: len(order), Job: cards[0].Job}
	store := newStore(w, local)
	if len(order) == 1 {
		names = nil // they are of no interest
	}
	inner, err := near(ctx, place.LocalRank, place.LocalSize, store)
	err = errors.Join(err, store.close(ctx))
	if err != nil {
		if inner != nil {
			err = errors.Join(err, inner.Close())
		}
		return nil, Place{}, err
	}
	t, err := Open(Party{Wire: w, Inner: inner, Hosts: hosts, Names: names, Losses: losses}, cfg)
	if err != nil {
		return nil, Place{}, errors.Join(err, inner.Close())
	}
	return t, place, nil
}

// gatherHosts returns the cards of all processes. Process 0 collects and returns them. Only its
// card has a job.
func gatherHosts(ctx context.Context, w wire.Wire, own Card) (cards []Card, err error) {
	info := w.Info()
	if n := max(len(own.Host), len(own.Job)); n > hostBytes {
		return nil, fmt.Errorf("the id of this host or job has %d bytes, and %d are possible", n, hostBytes)
	}
	text := own.Host + "\x00" + own.Name
	text = text[:min(len(text), hostBytes)]
	all := make([]byte, (info.Size+1)*hostBytes) // the job, then hosts and their names
	if info.Rank != 0 {
		var out, in wire.Request
		w.Recv(&in, 0, tagHosts, all)
		w.Send(&out, 0, tagHosts, []byte(text))
		err = wire.Wait(w, causeOf(ctx), &out, &in)
	} else {
		copy(all, own.Job)
		copy(all[hostBytes:], text)
		err = collectHosts(ctx, w, all)
	}
	if err != nil {
		return nil, fmt.Errorf("exchange names of hosts: %w", err)
	}
	for part := range slices.Chunk(all[hostBytes:], hostBytes) {
		host, name, _ := strings.Cut(strings.TrimRight(string(part), "\x00"), "\x00")
		cards = append(cards, Card{Host: host, Name: name})
	}
	cards[0].Job = strings.TrimRight(string(all[:hostBytes]), "\x00")
	return cards, nil
}

// causeOf returns a function that returns why ctx has ended.
func causeOf(ctx context.Context) func() error { return func() error { return context.Cause(ctx) } }

// collectHosts is the part of process 0: it fills all, hostBytes for each process, and sends it.
func collectHosts(ctx context.Context, w wire.Wire, all []byte) error {
	size := w.Info().Size
	requests := make([]*wire.Request, size)
	for r := range requests {
		requests[r] = new(wire.Request)
	}
	for r := 1; r < size; r++ {
		w.Recv(requests[r], r, tagHosts, all[(r+1)*hostBytes:(r+2)*hostBytes])
	}
	if err := wire.Wait(w, causeOf(ctx), requests...); err != nil {
		return err
	}
	for r := 1; r < size; r++ {
		w.Send(requests[r], r, tagHosts, all)
	}
	return wire.Wait(w, causeOf(ctx), requests...)
}
