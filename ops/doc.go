// Package ops is communication as nodes of a Gorgonia graph: every collective of dist as an op that
// runs under gorgonia.NewTapeMachine, infers type and shape, and can be differentiated.
//
//	h, err := gorgonia.Mul(w, x)                 // w: this rank's rows of the weight
//	y, err := ops.AllGather(group, h)            // all rows, on every rank
//	grads, err := gorgonia.Grad(cost, w)         // the backward pass holds a reducescatter
//
// A group may be one of GPUs: then package machine runs the graph, on the GPU of the rank, and its
// collectives are steps of its program. Messages and barriers are for groups of the host: of others
// they are dist.ErrDevice.
//
// # The loss that is differentiated
//
// Each rank builds its own graph with its own scalar cost. The loss is the sum of the costs over
// the ranks of the group,
//
//	L = cost_0 + cost_1 + ... + cost_{n-1}
//
// and gorgonia.Grad(cost, w) on rank r is dL/dw_r: how the loss, not only the own cost, changes
// with what rank r holds in w. That makes every gradient again a collective, with source and
// destination exchanged and the weights of the sum on the other side of it:
//
//	op                    y on rank q                    dL/dx on rank r, with g_q = dL/dy on rank q
//	AllReduce sum         sum_r x_r                      AllReduce sum of g
//	AllReduce avg         sum_r x_r / n                  AllReduce avg of g
//	AllReduce premulsum   sum_r s_r x_r                  s_r * AllReduce sum of g
//	Reduce red            as AllReduce on root, else 0   weight_r * Broadcast of g from root
//	Broadcast             x_root                         on root Reduce sum of g, else 0
//	AllGather             x_0, x_1, ... along axis 0     ReduceScatter sum of g
//	ReduceScatter red     block q of the reduction       weight_r * AllGather of g
//	AllToAll              block q of x_0, of x_1, ...    AllToAll of g
//	Gather                AllGather on root, else 0      Scatter of g from root
//	Scatter               block q of x_root              on root Gather of g, else 0
//	Send                  0, a scalar                    Recv of the peer's g
//	Recv                  the peer's x                   Send of g; the gradient of its own input is 0
//	Barrier               x                              g
//
// where weight_r is 1 for sum, 1/n for avg and the rank's own scalar for premulsum. For example,
// premulsum gives y_q = sum_r s_r x_r on every rank q, so dL/dx_r = sum_q g_q s_r = s_r * sum_q
// g_q. Where a rank has no result (Reduce and Gather beside the root) the output is zeros of the
// result's shape, and what the rank does with them does not reach the gradient. Prod, min and max
// have no gradient here: gorgonia.Grad through them is an error.
//
// A cost that went through AllReduce counts n times in L. Differentiate the local cost, and reduce
// it only to report it.
//
// # Order: the caller's duty
//
// A tape machine runs nodes in the order in which they were made, and a collective only completes
// when all ranks of its group issue it. So all ranks must build the same graph: the same
// collectives in the same order, over tensors of the same shape. Gradients follow the same rule,
// since gorgonia.Grad walks equal graphs equally, as long as on every rank the cost depends on the
// output of each collective, the collective depends on a node that is passed to gorgonia.Grad, and
// CompileFunction, if used, is given the same outputs. It drops what they do not need: a Send is
// not sent unless an output needs its token. Graphs may differ where only Send and Recv connect the
// ranks, as in a pipeline.
//
// Ranks that break the rule get dist.ErrMismatch, or dist.ErrTimeout from a rank that waits for an
// operation that never comes.
//
// # Identity
//
// Gorgonia merges nodes that hash alike, when they are made and again when the graph is compiled. A
// collective is an effect, so each one hashes its number in its graph and two are not merged even
// if they are equal and have one input. (Gorgonia compares 32-bit hashes only; Overlap.Grad looks
// for different nodes with one hash.)
//
// # Batch normalization
//
// SyncBatchNorm normalizes over the batch of all ranks. It is several nodes, of which two
// communicate: means and squares in the forward pass, and the sums that its gradient needs in the
// backward pass. Unlike the verbs above it takes the loss to be the mean that package ddp
// minimizes, unless BatchNormConfig says otherwise.
//
// # Overlap
//
// The collectives wait in Do. Gradients of data-parallel parameters go another way, by which they
// travel while the backward pass still runs: see Hook and Overlap, which package ddp builds on.
//
// # Memory and errors
//
// An op reads its input, which it never changes, returns or keeps, and writes memory of its own:
// the value a machine has placed for it, else a fresh tensor. A view that is not contiguous is
// copied first. Do returns when the operation is done.
//
// Errors of a collective come out of the machine's RunAll and name op, rank and tensor: the result
// node if it was given a name, else the input. Cause strips Gorgonia's wrapping so that errors.Is
// finds the sentinels of dist. Reset the machine before it runs again. Errors that were found
// before anything was sent (dist.ErrInvalid) leave the group usable; after any other the group is
// broken.
//
// Sources: the adjoints are those of PyTorch's torch.distributed.nn.functional; the token of Send
// follows mpi4jax.
package ops
