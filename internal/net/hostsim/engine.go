package hostsim

// verb is the kind of an operation.
type verb uint8

const (
	send verb = iota
	take      // waits for a message
	work      // keeps the processor busy
)

// anyone is the peer of an operation that takes a message of any actor.
const anyone = -1

// op is an operation of an actor. lo and hi are a range of parts of the elements.
type op struct {
	verb    verb
	peer    int // actor
	tag     int // of the message
	lo, hi  int
	bytes   float64 // of the message
	seconds float64 // of work
	joins   bool    // take: adds the terms of the message to those here, instead of replacing them
	folds   bool    // work: adds the terms
}

// program returns operation i of an actor, and false after the last.
type program func(i int) (op, bool)

// actor runs a program on a processor. Actors with one state share the values of the elements.
type actor struct {
	host, proc, state int
	do                program

	next    int // operation
	waits   bool
	arrived []*message
	ended   bool
}

// message is on its way to an actor, or waits for it.
type message struct {
	from, to, tag, lo, hi int
	bytes                 float64
	tail                  float64 // when the last byte has left the sender's link and the network
	values                []value
}

// event is a change at a time: an actor runs, or a message reaches its host or its actor.
type event struct {
	at      float64
	number  int // of the event: order of events at one time
	kind    eventKind
	actor   int32
	message *message
}

type eventKind uint8

const (
	runs    eventKind = iota
	reaches           // first byte at the link of the receiver's host
	lands             // last byte there
)

// engine has the state of a run. Times are seconds.
type engine struct {
	cfg    *Config
	actors []actor
	values [][]value // by state and part; nil unless checked

	proc, out, in []float64 // by processor or host: when it is free
	events        []event   // heap
	number        int
	now           float64

	ends     float64 // of the last program
	messages int
	sent     []float64 // bytes, by host
}

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.number < b.number }

// push adds an event to the heap.
func (e *engine) push(at float64, kind eventKind, a int, m *message) {
	e.number++
	e.events = append(e.events, event{at, e.number, kind, int32(a), m})
	h := e.events
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !before(&h[i], &h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// pop removes the first event of the heap.
func (e *engine) pop() event {
	h := e.events
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	e.events = h
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if before(&h[c], &h[least]) {
				least = c
			}
		}
		if least == i {
			return top
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// loop handles events until there are none.
func (e *engine) loop() {
	for len(e.events) > 0 {
		v := e.pop()
		e.now = v.at
		switch v.kind {
		case runs:
			e.run(int(v.actor))
		case reaches:
			m := v.message
			host := e.actors[m.to].host
			start := max(e.now, e.in[host])
			e.in[host] = max(start+m.bytes/e.cfg.Net.Bandwidth*e.slow(host), m.tail)
			e.push(e.in[host], lands, m.to, m)
		case lands:
			e.land(v.message)
		}
	}
}

// run does the next operation of an actor.
func (e *engine) run(i int) {
	a := &e.actors[i]
	if e.lost(a.host) {
		return
	}
	o, more := a.do(a.next)
	if !more {
		a.ended = true
		e.ends = max(e.ends, e.now)
		return
	}
	switch o.verb {
	case send:
		e.send(i, &o)
	case take:
		a.waits = true
		for k, m := range a.arrived {
			if o.matches(m) {
				a.arrived = append(a.arrived[:k], a.arrived[k+1:]...)
				e.take(i, &o, m)
				return
			}
		}
	case work:
		if o.folds && e.values != nil {
			for p := o.lo; p < o.hi; p++ {
				e.values[a.state][p] = e.values[a.state][p].fold()
			}
		}
		e.busy(i, o.seconds)
	}
}

func (o *op) matches(m *message) bool {
	return o.tag == m.tag && (o.peer == m.from || o.peer == anyone)
}

// busy keeps the processor of actor i busy, and then runs its next operation. It returns the end.
//
// Actors get a processor in the order of their calls. Actors of a host have either one processor or
// one each, so that their messages also reach its link in the order of calls.
func (e *engine) busy(i int, seconds float64) float64 {
	a := &e.actors[i]
	end := max(e.now, e.proc[a.proc]) + seconds*e.slow(a.host)
	e.proc[a.proc] = end
	a.next++
	e.push(end, runs, i, nil)
	return end
}

// send starts a message of actor i.
func (e *engine) send(i int, o *op) {
	a, to := &e.actors[i], &e.actors[o.peer]
	m := &message{from: i, to: o.peer, tag: o.tag, lo: o.lo, hi: o.hi, bytes: o.bytes}
	if e.values != nil {
		m.values = append(m.values, e.values[a.state][o.lo:o.hi]...)
	}
	e.messages++
	if a.host == to.host {
		end := e.busy(i, localOverhead)
		e.push(end+localLatency+o.bytes/e.cfg.Net.Memory, lands, o.peer, m)
		return
	}
	ready := e.busy(i, e.cfg.Net.Overhead)
	start := max(ready, e.out[a.host])
	e.out[a.host] = start + o.bytes/e.cfg.Net.Bandwidth*e.slow(a.host)
	e.sent[a.host] += o.bytes
	m.tail = e.out[a.host] + e.cfg.wire()
	e.push(start+e.cfg.wire(), reaches, o.peer, m)
}

// land gives a message to its actor, if that waits for it.
func (e *engine) land(m *message) {
	a := &e.actors[m.to]
	if e.lost(a.host) {
		return
	}
	if a.waits {
		if o, _ := a.do(a.next); o.matches(m) {
			e.take(m.to, &o, m)
			return
		}
	}
	a.arrived = append(a.arrived, m)
}

// take gives a message to actor i, which waits for it.
func (e *engine) take(i int, o *op, m *message) {
	a := &e.actors[i]
	a.waits = false
	if e.values != nil {
		own := e.values[a.state]
		for k, v := range m.values {
			if o.joins {
				v = own[m.lo+k].join(v)
			}
			own[m.lo+k] = v
		}
	}
	if e.actors[m.from].host == a.host {
		e.busy(i, localOverhead)
		return
	}
	e.busy(i, e.cfg.Net.Overhead)
}

// slow returns the factor by which host's times are longer.
func (e *engine) slow(host int) float64 {
	if f, ok := e.cfg.Slow[host]; ok {
		return f
	}
	return 1
}

// lost reports whether a host has stopped.
func (e *engine) lost(host int) bool {
	at, ok := e.cfg.Lost[host]
	return ok && e.now >= at
}
