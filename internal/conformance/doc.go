// Package conformance is the test suite that every backend passes. A backend's test is one line:
//
//	func TestConformance(t *testing.T) { conformance.Run(t, launch) }
//
// where launch runs a function on every rank of a new world. Run takes worlds of 1, 2, 3, 4 and 7
// ranks through every part of the suite. It also breaks worlds on purpose: ranks disagree, die,
// abort, close or never arrive.
//
// Ranks are goroutines, run by Drive, or processes: Processes starts the test again for each. In a
// group of a device, buffers are device memory, which the suite accesses by copies through
// Options.Memory. The cases are the same, except Litmus and Random, which need host memory because
// they read it while peers write. If a library reduces in another order than package dist promises
// for the host, its results are compared with a bound (Options.AnyOrder). Unsupported operations
// must be named (Options.Skip); any other error that matches dist.ErrUnsupported is a failure.
//
// Suite runs the same checks on one rank of an existing world, without a testing.T: every rank
// calls it. Every rank knows the inputs of all ranks and thus the result. Inputs are a function of
// rank and index, and the oracle combines them without using the code under test.
//
// Reductions have two kinds of input. Exact inputs are small whole numbers whose sums, products and
// means are all representable: the result must be that number. Random inputs round: the result must
// have, bit for bit, the rounding that package dist promises, in rank order.
package conformance
