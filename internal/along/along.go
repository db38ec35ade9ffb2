// Package along has a promise about collectives that only the executor of GPU programs makes, and
// that is therefore missing from the methods of dist.Group.
package along

// View returns a view of a group, both of type *dist.Group, for operations that could have started
// with the previous one: on every rank, their input was ready and their output free. Weights
// gathered bucket after bucket are an example. Between two GPUs copy engines then skip the
// rendezvous between the two operations. Results are the same; elsewhere nothing changes.
//
// The promise covers one stream and, if captured, one graph. If it is broken, elements may be read
// too early. Collective: all ranks use such a view for the same operations. Errors: otherwise its
// methods return ErrMismatch on all ranks of GPUs.
//
// Package dist sets View, because this package cannot import it.
var View func(group any) any
