// Package nn has the layers of today's models as functions on Gorgonia graphs: embeddings, linear
// layers, normalizations, activations, attention, convolutions, recurrent cells and losses. Each
// function adds nodes and returns the last one; parameters are nodes of the caller.
//
//	x, err := nn.Embedding(table, tokens) // (batch, context) to (batch, context, width)
//	h, err := nn.LayerNorm(x, gain, offset, 1e-5)
//	q, err := nn.Linear(h, wq, bq)
//	...
//	y, err := nn.Attention(q, k, v, nn.AttentionConfig{Heads: 12, Causal: true})
//	cost, err := nn.SparseCrossEntropy(logits, targets, nn.CrossEntropyConfig{})
//
// The graphs run on tape machines and in package machine, on the CPU and on GPUs, with float32 or
// float64. Package machine compiles them to few steps: a normalization is one kernel on a GPU, and
// attention with Compute bf16 needs no memory for its scores. Gradients come from gorgonia.Grad,
// ops.Grad or ddp.Attach.
//
// # Shapes
//
// Activations have their features last: (rows, features) or (batch, tokens, features). Images are
// (batch, channels, height, width). A vector parameter of n elements may have shape (n), (1, n) or
// any other shape with n elements.
//
// # Errors
//
// A function checks types and shapes before it adds nodes. Its error names the function, the node
// and the shapes: dist.ErrInvalid, dist.ErrCount for a shape, dist.ErrDType for a type. Errors of a
// run, such as a target outside the classes, come from the machine's RunAll.
//
// Sources: the definitions are those of PyTorch 2.11's torch.nn and torch.nn.functional; each
// function names its own.
package nn
