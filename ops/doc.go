// Package ops adds communication to a Gorgonia graph. Every collective of package dist is an op
// that runs under gorgonia.NewTapeMachine, infers its type and shape, and has a gradient.
//
//	h, err := gorgonia.Mul(w, x)                 // w: this rank's rows of the weight
//	y, err := ops.AllGather(group, h)            // all rows, on every rank
//	grads, err := gorgonia.Grad(cost, w)         // the backward pass holds a reducescatter
//
// The group may be one of GPUs. Package machine then runs the graph on the rank's GPU, with the
// collectives as steps of its program. Send, Recv and Barrier need a host group; other groups give
// dist.ErrDevice.
//
//   - verbs.go: AllReduce, AllGather and the other collectives
//   - derivative.go, derivative_rules.go, ctc.go: Grad, which is gorgonia.Grad with its wrong
//     derivatives corrected
//   - syncbatchnorm.go: SyncBatchNorm, batch normalization over all ranks
//   - hook.go, overlap.go: Hook and Overlap, which reduce gradients during the backward pass
//   - describe.go: Describe and the other functions for machines that run graphs without calling Do
//   - children.go: Children, Users and Sort, which work after gorgonia removed nodes
//
// # The loss
//
// Each rank builds its own graph with its own scalar cost. The loss is the sum of the costs over
// the ranks of the group,
//
//	L = cost_0 + cost_1 + ... + cost_{n-1}
//
// and gorgonia.Grad(cost, w) on rank r is dL/dw_r: how the loss, not only the rank's own cost,
// changes with w on rank r. So the gradient of each collective is a collective too. Source and
// destination are exchanged, and weights before the sum become weights after it:
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
//	Recv                  the peer's x                   Send of g; the gradient of after is 0
//	Barrier               x                              g
//
// where weight_r is 1 for sum, 1/n for avg and the rank's own scalar for premulsum. For example,
// premulsum gives y_q = sum_r s_r x_r on every rank q, so dL/dx_r = sum_q g_q s_r = s_r * sum_q
// g_q. Reduce and Gather give zeros of the result's shape on ranks other than the root; the use of
// those zeros does not affect the gradient. Prod, min and max have no gradient here: gorgonia.Grad
// returns an error.
//
// A cost that went through AllReduce counts n times in L. Differentiate the local cost, and reduce
// it only to report it.
//
// # All ranks build the same graph
//
// A tape machine runs nodes in the order in which they were made, and a collective completes only
// when all ranks of its group issue it. So all ranks must build the same graph: the same
// collectives in the same order, over tensors of the same shape.
//
// The same holds for gradients. gorgonia.Grad walks equal graphs in equal order if on every rank
//
//   - the cost depends on the output of each collective,
//   - the collective depends on a node that is passed to gorgonia.Grad, and
//   - CompileFunction, if used, gets the same outputs.
//
// CompileFunction drops nodes that its outputs do not need: a Send runs only if an output needs its
// token. Graphs may differ where only Send and Recv connect the ranks, as in a pipeline.
//
// If ranks differ, the collectives return dist.ErrMismatch, or dist.ErrTimeout on a rank that waits
// for an operation that never comes.
//
// # Identity
//
// Gorgonia merges nodes of equal hash, when they are made and again when the graph is compiled. A
// collective has an effect, so its hash includes its number in the graph. Two collectives are not
// merged even if they are equal and have the same input. Gorgonia compares 32-bit hashes only;
// Overlap.Grad looks for different nodes with one hash.
//
// # Batch normalization
//
// SyncBatchNorm normalizes over the batch of all ranks. Two of its nodes communicate: one gathers
// the means and squares in the forward pass, one adds the sums for the gradient in the backward
// pass. Unlike the collectives above, it takes the loss to be the mean that package ddp minimizes,
// unless BatchNormConfig.SumOfCosts is set.
//
// # Overlap
//
// A collective node waits for its result in Do. The gradients of data-parallel parameters are
// reduced while the backward pass still runs: see Hook and Overlap, which package ddp uses.
//
// # Memory and errors
//
// An op reads its input and never changes, returns or keeps it. The result is in memory of its own:
// the value that a machine has allocated for it, or a new tensor. A view that is not contiguous is
// copied first. Do returns when the operation is done.
//
// Errors of a collective are returned by the machine's RunAll and name the op, the rank and the
// tensor: the result node if it has a name, otherwise the input. Cause removes Gorgonia's wrapping
// so that errors.Is finds the sentinels of dist. Reset the machine before it runs again. After
// dist.ErrInvalid nothing was sent and the group stays usable. Any other error breaks the group.
//
// Sources: the gradients are those of PyTorch's torch.distributed.nn.functional; the token of Send
// follows mpi4jax.
package ops
