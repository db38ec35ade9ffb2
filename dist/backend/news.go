package backend

import (
	"context"
	"errors"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/net/hosts"
)

// news passes on the deaths of ranks on several hosts.
type news struct {
	losses hosts.Losses
	cancel context.CancelCauseFunc // of the opening of the world
}

// neverKey is a key that no rank sets.
const neverKey = "backend: the end of the job"

// newsDelay is the time in which ranks find a death themselves, with a reason that says more. It is
// shorter than the time that a launcher gives them.
const newsDelay = 300 * time.Millisecond

// firstDeath returns the first death of the job, for the error err of a rank that lost a peer while
// the world was opened: the peer may have left because of that death.
func firstDeath(opening context.Context, err error) error {
	var dead *dist.RankError
	if !errors.As(err, &dead) {
		return err
	}
	delay := time.NewTimer(newsDelay)
	defer delay.Stop()
	select {
	case <-opening.Done():
	case <-delay.C:
	}
	if cause := context.Cause(opening); errors.As(cause, &dead) {
		return dead
	}
	return err
}

// watch passes on the first death that the store reports. The opening of a world waits in libraries
// that notice none; later a launcher may know of a host without a sign of life before the ranks do.
//
// Owns: the caller calls stop before it closes the store.
func (n *news) watch(store dist.Store) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := store.Get(ctx, neverKey)
		var dead *dist.RankError
		if !errors.As(err, &dead) {
			return // the store is closed
		}
		n.cancel(dead)
		delay := time.NewTimer(newsDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
			n.losses.Announced(dead.Rank, dead.How)
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
