package hostsim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/symgrad/symgrad/internal/net/hostcost"
)

// Costs of messages inside a host.
const (
	localOverhead = hostcost.LocalOverhead
	localLatency  = hostcost.LocalLatency
)

// Config describes a run.
type Config struct {
	Net   hostcost.Net
	Bytes int64 // of a rank's input
	Chunk int64 // of Chain; 0 means Net.ChunkBytes
	Check bool  // follow contributions and check the results

	Seed uint64          // of the delays
	Late float64         // each host begins up to so many seconds late
	Slow map[int]float64 // by host: factor of the times of its processor and link
	Lost map[int]float64 // by host: seconds after which it does nothing more
}

func (c *Config) wire() float64 { return c.Net.Latency - 2*c.Net.Overhead }

// Result is the outcome of a run.
type Result struct {
	Seconds  float64 // from the start until the last rank has its result
	Messages int
	Sent     int64 // most bytes that a host sends
	Stuck    []int // hosts that did not end, in ascending order; empty if no host was lost
}

// Run does an allreduce. Hosts have Net.Ranks ranks each, in the order of hosts.
//
// Errors: those of hostcost.Net.Validate; an invalid Config; with Check, a wrong sum.
func Run(a hostcost.Algorithm, cfg Config) (Result, error) {
	if err := cfg.Net.Validate(); err != nil {
		return Result{}, fmt.Errorf("hostsim: %w", err)
	}
	cfg.Net = cfg.Net.WithDefaults()
	if cfg.Bytes < 1 || cfg.Chunk < 0 || cfg.Late < 0 {
		return Result{}, fmt.Errorf("hostsim: %d bytes in chunks of %d, up to %v s late: want positive numbers", cfg.Bytes, cfg.Chunk, cfg.Late)
	}
	if cfg.Chunk == 0 {
		cfg.Chunk = cfg.Net.ChunkBytes(cfg.Bytes)
	}
	s := plan(a, &cfg)
	if s == nil {
		return Result{}, fmt.Errorf("hostsim: unknown algorithm %v", a)
	}
	e := s.engine(&cfg)
	e.loop()
	res := Result{Seconds: e.ends, Messages: e.messages}
	for _, b := range e.sent {
		res.Sent = max(res.Sent, int64(b))
	}
	for i := range e.actors {
		if x := &e.actors[i]; !x.ended && !e.lost(x.host) {
			res.Stuck = append(res.Stuck, x.host)
		}
	}
	slices.Sort(res.Stuck)
	res.Stuck = slices.Compact(res.Stuck)
	if cfg.Check && len(cfg.Lost) == 0 {
		if err := e.check(a.InRankOrder()); err != nil {
			return res, fmt.Errorf("hostsim: %v on %d hosts: %w", a, cfg.Net.Hosts, err)
		}
	}
	return res, nil
}

// check checks the sums of all actors.
func (e *engine) check(inRankOrder bool) error {
	for i := range e.actors {
		for p, v := range e.values[e.actors[i].state] {
			if err := v.check(e.cfg.Net.World(), inRankOrder); err != nil {
				return fmt.Errorf("part %d of host %d: %w", p, e.actors[i].host, err)
			}
		}
	}
	return nil
}

// engine returns an engine at the start of s.
func (s *schedule) engine(cfg *Config) *engine {
	hosts := cfg.Net.Hosts
	e := &engine{
		cfg: cfg, actors: s.actors, proc: make([]float64, s.procs), out: make([]float64, hosts), in: make([]float64, hosts),
		sent: make([]float64, hosts),
	}
	if cfg.Check {
		for _, ranks := range s.inputs {
			parts := make([]value, s.parts)
			for p := range parts {
				parts[p] = inputs(ranks...)
			}
			e.values = append(e.values, parts)
		}
	}
	r := rand.New(rand.NewPCG(cfg.Seed, 0))
	late := make([]float64, hosts)
	for h := range late {
		late[h] = cfg.Late * r.Float64()
	}
	for i := range s.actors {
		e.push(late[s.actors[i].host], runs, i, nil)
	}
	return e
}
