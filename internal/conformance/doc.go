// Package conformance is the suite that every backend passes. A backend's test is one line:
//
//	func TestConformance(t *testing.T) { conformance.Run(t, launch) }
//
// where launch runs a function on every rank of a fresh world. Run takes worlds of 1, 2, 3, 4 and 7
// ranks through every part of the suite, and breaks worlds on purpose: ranks that disagree, die,
// abort, close or do not come.
//
// Ranks may be goroutines, as Drive runs them, or processes: Processes starts the test again for
// each. On a group of a device, buffers are memory of the device, which the suite reaches by copies
// through Options.Memory: the same cases, but for Litmus and Random, which look at memory while
// peers write it and need the host's. What a library adds up in another order than package dist
// promises for the host is held against a bound (Options.AnyOrder), and what it does not support
// must be named (Options.Skip): an error that matches dist.ErrUnsupported is a failure otherwise.
//
// Suite is the same for one rank of a world that exists, without a testing.T, so that it can run in
// processes of their own: every rank calls it. Every rank knows what every other puts in, and so
// what must come out: the values are a function of rank and index, and the oracle, written without
// the code that it checks, combines them.
//
// Two kinds of input are used for reductions. Exact inputs are small whole numbers, of which every
// sum, product and mean is a number of the type: what comes out must be that number. Random inputs
// round: what comes out must have, bit for bit, the rounding that package dist promises, in rank
// order.
package conformance
