// Package optim updates the weights of a Gorgonia model: SGD, momentum, Nesterov, Adam, AdamW, LAMB
// and Lion. New returns a Solver, a gorgonia.Solver for whole parameters on every rank. NewPieces
// returns a PieceSolver for the pieces of parameters that a rank owns.
//
// # One pass
//
// A step reads each weight, gradient and element of state once and writes it once. The same pass
// applies weight decay and every factor of the gradient: the 1/weight of data-parallel averaging,
// 1/loss scale and clipping. It also moves averages and zeroes gradients, span by span. LAMB reads
// everything twice, since the norms of its directions come before the update. Gorgonia's own Adam
// makes about sixteen passes and four copies for the same result.
//
// No memory is allocated after the first step. Weights and gradients are used as flat memory, not
// through the tensor engine, so they may be Go's memory, a mapped file's or a symmetric heap's. For
// float32 the pass is assembly if the processor has AVX2: up to five times as fast as Go, with
// equal bits.
//
// The update rules are those of PyTorch, in its order of operations:
//
//	https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html
//	https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
//	https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
//	https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
//	https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_value_.html
//	https://docs.pytorch.org/docs/stable/amp.html    LossScaler
//	https://arxiv.org/abs/1904.00962                 LAMB, as in NVIDIA's FusedLAMB and timm
//	https://arxiv.org/abs/2302.06675                 Lion
//
// A float32 model is updated in float32: hyperparameters and bias corrections are computed in
// float64 and rounded once, the rest is float32 arithmetic.
//
// # Equal bits
//
// Products are rounded before they are added, so that a compiler never fuses them. A step therefore
// gives equal bits
//
//   - on every architecture, except that the cosine of the cosine schedule may differ in the last
//     bit;
//   - with any number of goroutines;
//   - for any division of the weights into parameters, except with clipping by norm or LAMB, whose
//     sums follow the parameters.
//
// Ranks with equal weights and equal averaged gradients so stay equal without communication.
//
// Norms are sums over blocks of Block elements of each parameter, in float64. Each block is summed
// in one order, and the blocks are added in one order. So norms have equal bits for any cut of
// parameters into pieces between blocks. NewPieces gives each rank a solver for its pieces, as in
// ZeRO (arXiv:1910.02054); together the ranks get the bits of one Solver. They exchange only the
// sums of the blocks: one array if the norm is measured, one for LAMB. So all ranks decide equally
// whether a step is clipped, refused or skipped.
//
// # Gradients that are not finite
//
// With Config.ClipNorm a norm that is not finite is an error. With Config.SkipNonFinite the step is
// skipped and counted. LossScaler is the loss scale for such a solver.
//
// # Gradients after a step
//
// A step leaves every gradient zero, as with gorgonia's solvers: a VM made with
// gorgonia.BindDualValues adds to the gradient on every run. Config.KeepGradients turns that off.
// Two cases differ from gorgonia's solvers. A tensor that is the gradient of several parameters (a
// and b in a+b, without BindDualValues) is zeroed after the last of them. A gradient that is a
// constant of the graph (a in a+x) is never zeroed.
//
// A step that returns an error leaves weights, gradients and state unchanged; ZeroGradients clears
// the gradients to skip such a step.
//
// # State
//
// State belongs to a position in the model slice, not to a node: pass the parameters in one order
// every time, also after the graph was rebuilt. Every step compares number, shapes and dtypes with
// those of the first step.
package optim
