// Package checkpoint stores the state of a training run in files that any number of ranks can read,
// independent of the number that wrote them. It knows logical tensors (a name, a role, a dtype, a
// shape) and ranges of their elements in C order, each a Run. The program decides which rank has
// which range, and its purpose.
//
//   - saver.go, write.go, commit.go: Saver, which writes checkpoints
//   - open.go, merge.go: Checkpoint, which reads them; Merge writes one file from all
//   - file.go, safetensors.go, parse.go: File and Header, for any safetensors file
//   - manifest.go, types.go: Manifest, Tensor, Run and Meta
//
// # On disk
//
// A checkpoint is a folder:
//
//	step-00000200/
//	    rank-00000-of-00002.safetensors    the runs that rank 0 wrote
//	    rank-00001-of-00002.safetensors    those of rank 1
//	    manifest.json                      settings and state of the run, index of all tensors
//
// or has one file, model.safetensors, if Options.Sharded is false. The files are safetensors
// (https://github.com/huggingface/safetensors, "Format"): 8 bytes of little-endian length, a JSON
// header, the data. A run that is a whole tensor has its name and shape; elements 512 to 1024 of w
// are the tensor "w[512:1024]" of one dimension. The order of entries, the alignment to 8 and the
// text of the header equal those of the reference library, byte for byte.
//
// The manifest has the step, the number of ranks, the settings and their hash, and the plan's hash.
// It has the state of solver, sampler, random numbers and loss scale. It has the size and CRC-32C
// of every file, and the index. Its last member is the SHA-256 of the text before it. CRC-32C
// detects torn and rotten files, not forged ones, and is as fast as memory: 10.8 GB/s on a core of
// an EPYC, where SHA-256 reaches 1.6.
//
// # Saving
//
// All ranks write into step-00000200.tmp. Each file is written under a temporary name, flushed
// (fsync) and renamed, and the folder is flushed. Each rank then adds a small part file with size,
// checksum and index. Rank 0 waits for all parts by reading the folder. A save in the background
// has no collective, so it does not delay training, and a dead rank is an error that names it after
// Options.Timeout. Rank 0 then writes the manifest in the same way, and renames the folder.
//
// So a folder named step-00000200 is always whole. The newest checkpoint is the one with the
// highest step and a valid manifest; there is no link to update.
//
// A killed rank leaves at most a folder that ends in .tmp. New of rank 0 removes such folders, and
// finishes those that lacked only the renaming.
//
// An old checkpoint is renamed to step-00000100.removed.tmp before its files are removed. So a
// removal that a kill interrupts never looks like a damaged checkpoint: readers ignore that folder,
// and the next New or Save removes it.
//
// # One run at a time
//
// Two runs that save to one folder would remove each other's checkpoints. So rank 0 holds a flock
// on the file .lock there from New to Close; the operating system releases it when the process
// ends, also by a kill. New of another run returns a *LockedError with the folder and the process.
//
// Between hosts the lock is as good as the file system's: NFS locks where its lock service runs,
// Lustre where it is mounted with locks. Without locks, or if the service does not answer, New
// continues, because a run that cannot save is worse; Saver.Unlocked returns the reason. Reading
// takes no lock, so that read-only folders can be read.
//
// Every user who can open a file can flock it. So only users who may write to the folder can open
// .lock: its mode is 0600, plus the bits of the group or of all others if the folder's mode lets
// them write.
//
// # Reading
//
// Open returns the newest whole checkpoint. It reads every file once, with several goroutines, and
// compares sizes and checksums. It skips a torn checkpoint, which Checkpoint.Rejected lists. Files
// that are not regular are rejected without waiting, and a manifest has at most 64 MiB. Read then
// fills any range of any tensor from the files that have its elements:
//
//	c, err := checkpoint.Open(dir)
//	err = c.Read("w", piece.Offset, piece.Weight)
//
// Memory and files have the same byte order, little-endian; on other machines every function
// returns ErrUnsupported.
package checkpoint
