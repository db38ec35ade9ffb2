// Package machinetest holds a gorgonia.VM against Gorgonia's own tape machine: models, an oracle,
// and random graphs.
//
//	func TestModels(t *testing.T) {
//		machinetest.Run(t, func(m *machinetest.Model) (gorgonia.VM, error) {
//			return machine.New(m.Graph, m.Outputs(), machine.Config{})
//		}, machinetest.Options{Tolerance: 1e-6})
//	}
//
// Run trains each of Models twice, from equal weights on equal samples: under the judged machine,
// and under gorgonia.NewTapeMachine. Losses, gradients of every parameter at every step, running
// statistics and final weights must be the same; a difference is named by model, step and
// parameter. Random does so for small random graphs.
//
// # Limits of the models
//
// Gorgonia v0.9.18 is the oracle, so it cannot judge its own faults and random results:
//
//   - The backward pass of gorgonia.Dropout divides by p instead of 1-p, and its masks are random.
//     The oracle for dropout is therefore a graph that multiplies by a mask that is an input: the
//     mask that the judged machine has drawn, read from the value of the dropout's node. That is
//     right for every p. How often elements are kept is judged apart.
//   - gorgonia.AveragePool2D divides by the width of its input instead of the size of the window,
//     and its gradient is wrong. A machine may follow Gorgonia or do it right, so there are two
//     oracles: see Options.TruePooling.
//   - Subexpressions are merged by a 32-bit hash, and the hash of softmax leaves out whether it is
//     its logarithm: no model has both of one input.
//   - The gradients of gorgonia.InverseSqrt and Log2 are wrong, and a machine may refuse them: they
//     are not among the random graphs.
//   - Reshape shares memory, and an elementwise op writes into an operand of which it is the last
//     reader: a parameter is never reshaped and then an operand of an elementwise op of its own
//     size.
//   - Parameters may have one gradient node, such as two operands of one addition, and then have
//     one tensor as their gradient, which a solver would zero between them. Tape gives each its
//     own.
//   - Names: two inputs of one name, type and shape are one node. All names differ.
//   - A parameter whose gradient is zero except for rounding (a bias before a normalization)
//     would be noise after a solver that divides by its size. There is none.
//
// The package imports Gorgonia and its tensors and nothing else of this module: it shares no code
// with the judged machine.
package machinetest
