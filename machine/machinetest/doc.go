// Package machinetest compares a gorgonia.VM with Gorgonia's own tape machine, the oracle, on
// models and on random graphs.
//
//	func TestModels(t *testing.T) {
//		machinetest.Run(t, func(m *machinetest.Model) (gorgonia.VM, error) {
//			return machine.New(m.Graph, machine.Config{}, m.Outputs()...)
//		}, machinetest.Options{Tolerance: 1e-6})
//	}
//
// Run trains each of Models twice, from equal weights on equal samples: with the tested machine and
// with gorgonia.NewTapeMachine. Losses, gradients of every parameter at every step, running
// statistics and final weights must agree; a difference is reported with model, step and parameter.
// Random does the same for small random graphs.
//
// # Limits of the oracle
//
// Gorgonia v0.9.18 cannot test results that it computes wrongly or by chance:
//
//   - The backward pass of gorgonia.Dropout divides by p instead of 1-p, and its masks are random.
//     So the oracle for dropout multiplies by an input, the mask that the tested machine has drawn.
//     Train reads it from the value of the dropout's node. That is right for every p. CheckMasks
//     tests the share of kept elements.
//   - gorgonia.AveragePool2D divides by the width of its input instead of the size of the window,
//     and has a wrong gradient. A machine may copy Gorgonia or be right, so there are two oracles:
//     see Options.TruePooling.
//   - Gorgonia merges subexpressions by a 32-bit hash, and the hash of softmax ignores whether it
//     is the logarithm: no model has both of one input.
//   - The gradients of gorgonia.InverseSqrt and Log2 are wrong, and a machine may reject them:
//     random graphs do not have them.
//   - Reshape shares memory, and an elementwise op writes into an operand of which it is the last
//     reader: no parameter is reshaped and then read by an elementwise op of its own size.
//   - Parameters with one gradient node, such as two operands of an addition, have one gradient
//     tensor, which a solver would zero between them. Tape gives each its own.
//   - Two inputs of one name, type and shape are one node: all names differ.
//   - A gradient that is zero except for rounding (a bias before a normalization) becomes noise in
//     a solver that divides by its size: no model has one.
//
// The package imports Gorgonia and its tensors only, so it shares no code with the tested machine.
package machinetest
