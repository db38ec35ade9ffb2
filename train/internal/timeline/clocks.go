package timeline

import (
	"fmt"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/trace"
	"github.com/symgrad/symgrad/train/internal/exchange"
)

// clockRounds is the number of rounds in which ranks compare clocks. A round takes as long as a
// small collective, and one of the first is often slow.
const clockRounds = 16

// CompareClocks compares the clocks of all hosts before the first step of the timeline. Ranks of
// one host share a clock.
//
// Collective: all ranks.
func (s *Spans) CompareClocks(k *exchange.Values, local dist.LocalInfo) error {
	if !s.on || local.Nodes <= 1 || s.clocks != nil {
		return nil
	}
	rounds, err := s.exchangeTimes(k)
	if err != nil {
		return fmt.Errorf("compare clocks: %w", err)
	}
	nodes, err := exchange.Every(k, "host of each rank", []int64{int64(local.Node)})
	if err != nil {
		return fmt.Errorf("compare clocks: %w", err)
	}
	best := map[int64]trace.Clock{nodes[0]: {}} // of each host, the clock with the least bound
	for r, node := range nodes {
		c := trace.Clock{}
		c.Offset, c.Bound = trace.Offset(rounds[r], rounds[0])
		if old, ok := best[node]; !ok || c.Bound < old.Bound {
			best[node] = c
		}
	}
	for r, node := range nodes {
		c := best[node]
		c.Rank, c.Node = r, int(node)
		s.clocks = append(s.clocks, c)
	}
	return nil
}

// exchangeTimes lets all ranks exchange their times, and returns the rounds of each.
//
// Collective: all ranks.
func (s *Spans) exchangeTimes(k *exchange.Values) ([][]trace.Round, error) {
	rounds := make([][]trace.Round, k.World().Size())
	var left time.Time // the last round
	for i := range clockRounds + 1 {
		entered := s.at(time.Now())
		times, err := exchange.Every(k, "times", []int64{left.UnixNano(), entered.UnixNano()})
		if err != nil {
			return nil, err
		}
		left = s.at(time.Now())
		for r := range rounds {
			if i > 0 {
				rounds[r][i-1].Leave = time.Unix(0, times[2*r])
			}
			if i < clockRounds {
				rounds[r] = append(rounds[r], trace.Round{Enter: time.Unix(0, times[2*r+1])})
			}
		}
	}
	return rounds, nil
}
