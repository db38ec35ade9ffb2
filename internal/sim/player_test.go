package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/sim"
	"github.com/symgrad/symgrad/symmetric"
	"github.com/symgrad/symgrad/tensor"
)

// player runs the directives of one script on one world after another.
type player struct {
	ranks []*actor
}

// actor is one rank of the world with the objects that the script has made on it.
type actor struct {
	w       *dist.World
	groups  map[string]*dist.Group
	heaps   map[string]symmetric.Heap
	regions map[string]symmetric.Region
	pending []pending
	log     strings.Builder
}

type pending struct {
	what string
	work dist.Work
	dst  tensor.Buffer
}

func newPlayer() *player { return &player{} }

func (p *player) close() {
	var ranks sync.WaitGroup
	for _, a := range p.ranks {
		ranks.Go(func() { _ = a.w.Close() })
	}
	ranks.Wait()
	p.ranks = nil
}

// do runs one directive and returns its output:
//
//	world n=3 timeout=10s unchecked=true   a new world; the input is the fault script
//	run                                    a line "RANKS: statement; statement" for each set
func (p *player) do(d directive) string {
	words := strings.Fields(d.command)
	switch words[0] {
	case "world":
		p.close()
		return p.world(arguments(words[1:]), strings.Join(d.input, "\n"))
	case "run":
		return p.run(d.input)
	}
	return fmt.Sprintf("unknown directive %q\n", words[0])
}

func (p *player) world(args map[string]string, script string) string {
	n, err := strconv.Atoi(args["n"])
	if err != nil {
		return err.Error() + "\n"
	}
	cfg := sim.Config{Script: script, Unchecked: args["unchecked"] == "true"}
	if s := args["timeout"]; s != "" {
		if cfg.StepTimeout, err = time.ParseDuration(s); err != nil {
			return err.Error() + "\n"
		}
	}
	worlds, err := sim.New(n, cfg)
	if err != nil {
		return err.Error() + "\n"
	}
	for _, w := range worlds {
		p.ranks = append(p.ranks, &actor{
			w: w, groups: map[string]*dist.Group{"world": w.Group},
			heaps: map[string]symmetric.Heap{}, regions: map[string]symmetric.Region{},
		})
	}
	return "ok\n"
}

func (p *player) run(lines []string) string {
	work := make([][]string, len(p.ranks))
	for _, line := range lines {
		who, what, _ := strings.Cut(line, ":")
		for _, r := range ranksOf(who, len(p.ranks)) {
			for _, s := range strings.Split(what, ";") {
				work[r] = append(work[r], strings.TrimSpace(s))
			}
		}
	}
	var ranks sync.WaitGroup
	for r, a := range p.ranks {
		ranks.Go(func() {
			for _, s := range work[r] {
				a.statement(s)
			}
		})
	}
	ranks.Wait()
	synctest.Wait() // what was queued without waiting has come as far as it can
	var out strings.Builder
	for r, a := range p.ranks {
		for line := range strings.Lines(a.log.String()) {
			fmt.Fprintf(&out, "%d: %s", r, line)
		}
		a.log.Reset()
	}
	return out.String()
}

func ranksOf(who string, n int) []int {
	var ranks []int
	for r := range n {
		if who == "all" || slices.Contains(strings.Split(who, ","), strconv.Itoa(r)) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func arguments(words []string) map[string]string {
	args := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		args[key] = value
	}
	return args
}

// statement runs one statement and logs its outcome. Operations are waited for, unless the first
// word is async.
func (a *actor) statement(s string) {
	words := strings.Fields(s)
	verb, args := words[0], arguments(words[1:])
	async := verb == "async"
	if async {
		verb = words[1]
	}
	g := a.groups["world"]
	if name := args["in"]; name != "" {
		g = a.groups[name]
	}
	switch {
	case verb == "wait":
		for _, q := range a.pending {
			a.report(q.what, q.dst, q.work.Wait())
		}
		a.pending = nil
	case a.other(verb, args, g):
	default:
		w, dst, err := a.issue(g, verb, args)
		if err == nil && async {
			a.pending = append(a.pending, pending{verb, w, dst})
			return
		}
		if err == nil {
			err = w.Wait()
		}
		a.report(verb, dst, err)
	}
}

// issue queues an operation: allreduce data=1,r type=f32 red=sum; send data=1 to=2; recv count=1
// from=0; and so on. r in data is the rank. A batch has its members in do, with : for a blank and +
// between them.
func (a *actor) issue(g *dist.Group, verb string, args map[string]string) (dist.Work, tensor.Buffer, error) {
	src, err := a.data(args)
	if err != nil {
		return dist.Work{}, tensor.Buffer{}, err
	}
	number := func(key string) int { n, _ := strconv.Atoi(args[key]); return n }
	n := src.Len()
	if args["count"] != "" {
		n = number("count")
	}
	red, ok := map[string]dist.RedOp{"": dist.Sum, "sum": dist.Sum, "max": dist.Max, "avg": dist.Avg}[args["red"]]
	if !ok {
		return dist.Work{}, tensor.Buffer{}, fmt.Errorf("unknown reduction %q", args["red"])
	}
	dst := zeros(src.DType(), n)
	var w dist.Work
	switch verb {
	case "allreduce":
		w, err = g.AllReduce(dst, src, red)
	case "reduce":
		w, err = g.Reduce(dst, src, red, number("root"))
	case "broadcast":
		w, err = g.Broadcast(dst, src, number("root"))
	case "allgather":
		dst = zeros(src.DType(), n*g.Size())
		w, err = g.AllGather(dst, src)
	case "send":
		w, err = g.Send(src, number("to"))
		dst = tensor.Buffer{}
	case "recv":
		w, err = g.Recv(dst, number("from"))
	case "barrier":
		w, err = g.Barrier()
		dst = tensor.Buffer{}
	case "batch":
		return a.batch(g, args["do"])
	default:
		err = fmt.Errorf("unknown statement %q", verb)
	}
	return w, dst, err
}

func (a *actor) batch(g *dist.Group, do string) (dist.Work, tensor.Buffer, error) {
	var last tensor.Buffer
	w, err := g.Batch(func(g *dist.Group) error {
		for _, m := range strings.Split(do, "+") {
			words := strings.Split(m, ":")
			_, dst, err := a.issue(g, words[0], arguments(words[1:]))
			if err != nil {
				return err
			}
			if !dst.IsZero() {
				last = dst
			}
		}
		return nil
	})
	return w, last, err
}

// other runs the statements that are no operations and reports whether verb is one of them.
func (a *actor) other(verb string, args map[string]string, g *dist.Group) bool {
	number := func(key string) int { n, _ := strconv.Atoi(args[key]); return n }
	name := args["name"]
	var err error
	switch verb {
	case "split":
		var sub *dist.Group
		sub, err = g.Split(number("color"), number("key"))
		if sub != nil {
			a.groups[name] = sub
			fmt.Fprintf(&a.log, "split: rank %d of %d, world ranks %v\n", sub.Rank(), sub.Size(), sub.Ranks())
			return true
		}
		if err == nil {
			fmt.Fprintln(&a.log, "split: no group")
			return true
		}
	case "heap":
		a.heaps[name], err = g.Heap(int64(number("bytes")))
	case "alloc":
		var r symmetric.Region
		if r, err = a.heaps[args["heap"]].Alloc(int64(number("bytes"))); err == nil {
			a.regions[name] = r
			fmt.Fprintf(&a.log, "alloc: offset %d, %d B\n", r.Offset(), r.Local().Len())
			return true
		}
	case "free":
		err = a.heaps[args["heap"]].Free(a.regions[name])
	case "closeheap":
		err = a.heaps[name].Close()
	case "abort":
		err = g.Abort(errors.New(args["cause"]))
	case "close":
		err = g.Close()
	default:
		return false
	}
	a.report(verb, tensor.Buffer{}, err)
	return true
}

func (a *actor) report(verb string, dst tensor.Buffer, err error) {
	switch {
	case err != nil:
		fmt.Fprintf(&a.log, "%s: %v%s\n", verb, err, kinds(err))
	case dst.Len() == 0:
		fmt.Fprintf(&a.log, "%s: ok\n", verb)
	default:
		fmt.Fprintf(&a.log, "%s: %v\n", verb, values(dst))
	}
}

// kinds is the names of the sentinels that err matches.
func kinds(err error) string {
	var names []string
	for _, k := range []struct {
		err  error
		name string
	}{
		{dist.ErrInvalid, "invalid"},
		{dist.ErrMismatch, "mismatch"},
		{dist.ErrAborted, "aborted"},
		{dist.ErrTimeout, "timeout"},
		{dist.ErrClosed, "closed"},
		{symmetric.ErrNoSpace, "no space"},
		{symmetric.ErrNotAllocated, "not allocated"},
	} {
		if errors.Is(err, k.err) {
			names = append(names, k.name)
		}
	}
	return " <" + strings.Join(names, " ") + ">"
}

func zeros(dt tensor.DType, n int) tensor.Buffer {
	if dt == tensor.I32 {
		return tensor.Of(make([]int32, n))
	}
	return tensor.Of(make([]float32, n))
}

// data is the elements in args["data"], of type f32 or i32.
func (a *actor) data(args map[string]string) (tensor.Buffer, error) {
	var f []float32
	var i []int32
	for _, word := range strings.FieldsFunc(args["data"], func(c rune) bool { return c == ',' }) {
		v := a.w.Rank()
		if word != "r" {
			var err error
			if v, err = strconv.Atoi(word); err != nil {
				return tensor.Buffer{}, err
			}
		}
		f, i = append(f, float32(v)), append(i, int32(v))
	}
	if args["type"] == "i32" {
		return tensor.Of(i), nil
	}
	return tensor.Of(f), nil
}

func values(b tensor.Buffer) any {
	if v, err := tensor.Data[int32](b); err == nil {
		return v
	}
	v, _ := tensor.Data[float32](b)
	return v
}
