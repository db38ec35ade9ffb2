// Package output has the files that a run writes: the exclusive right to its output folder, and
// files that are written completely or not at all.
package output
