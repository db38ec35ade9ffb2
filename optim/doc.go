// Package optim updates the weights of a Gorgonia model: SGD, momentum, Nesterov, Adam, AdamW, LAMB
// and Lion as gorgonia.Solver values, for whole parameters on every rank, or for the pieces that a
// rank owns of them.
//
// # One pass
//
// A step reads each weight, gradient and piece of state once and writes it once. Everything that
// scales a gradient (the 1/weight of data-parallel averaging, the unscale of a loss scale,
// clipping) and weight decay is folded into that pass, and moving averages and the zeroing of
// gradients go along with it, span by span. LAMB reads everything twice, since the norms of its
// directions come before the update. gorgonia's own Adam makes about sixteen passes and four copies
// for the same result. No memory is allocated after the first step, and the tensor engine is not
// used: weights and gradients are taken as flat memory, which may be Go's, a mapped file's or a
// symmetric heap's. In float32 the pass is assembly where the processor has AVX2, and up to five
// times as fast as Go, with the same bits.
//
// The update rules are the ones PyTorch publishes, in its order of operations:
//
//	https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html
//	https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
//	https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html
//	https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
//	https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_value_.html
//	https://docs.pytorch.org/docs/stable/amp.html                  LossScaler
//	https://arxiv.org/abs/1904.00962                               LAMB, as NVIDIA's FusedLAMB and timm have it
//	https://arxiv.org/abs/2302.06675                               Lion
//
// A float32 model is updated in float32: hyperparameters and bias corrections are computed in
// float64 and rounded once, the rest is float32 arithmetic.
//
// # The same bits
//
// Products are rounded before they are added, so that a compiler never fuses them: a step gives the
// same bits on every architecture (but for the cosine schedule, whose cosine may differ in the last
// bit), with any number of goroutines, and however the weights are cut into parameters (but for the
// norms of clipping and of LAMB, whose sums follow the parameters). Ranks that hold equal weights
// and equal averaged gradients therefore stay equal without talking to each other.
//
// Norms are sums over fixed blocks of Block elements of each parameter, in float64, each block
// summed in one order and the blocks added in one order. So they are the same bits for any cut of
// the parameters into pieces between blocks: NewPieces gives each of several ranks a solver for
// what it owns, as ZeRO does (arXiv:1910.02054), and together they do what one Solver does to the
// whole, bit by bit. They exchange nothing but the sums of the blocks: one array where the norm is
// measured, one for LAMB, and so decide alike whether a step is clipped, refused or skipped.
//
// # Gradients that are not finite
//
// With Config.ClipNorm a norm that is not finite is an error, and with Config.SkipNonFinite the
// step is left out and counted. LossScaler is the loss scale that goes with it.
//
// # What a step does to gradients
//
// As gorgonia's solvers do, a step leaves every gradient zero: a VM made with
// gorgonia.BindDualValues adds into the gradient on every run. Config.KeepGradients turns that off.
// Unlike with gorgonia's solvers, a gradient that is one tensor for several parameters (a and b in
// a+b, without BindDualValues) is zeroed after the last of them, and one that is a constant of the
// graph (a in a+x) never. A step that returns an error leaves weights, gradients and state as they
// were; ZeroGradients clears the gradients of a step that is to be skipped.
//
// # State
//
// State belongs to a position in the model slice, not to a node: give the parameters in the same
// order every time, also after the graph has been rebuilt. What the first step saw (number, shapes,
// dtypes) is compared on every later step.
package optim
