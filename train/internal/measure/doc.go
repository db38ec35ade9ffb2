// Package measure records the losses and the times of a training, and sums them over the ranks
// every few steps.
package measure
