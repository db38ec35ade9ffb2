// Package save writes the state of a training to checkpoints, and reads it back, on any number of
// ranks: weights, state of the optimizer and of gradient compression, loss scale, position in the
// samples, losses and settings. Random numbers need no state: they depend on seed, step and sample
// only.
//
//   - training.go: Training, whose tensors a checkpoint has
//   - memory.go: Memory, its state that is no tensor
//   - folder.go: Folder, in which a run saves
//   - origin.go, restore.go: Origin, the checkpoint that a run resumes from
package save
