// Package checkpoint keeps the state of a training run in files that any number of ranks can read
// again, whatever the number that wrote them. It knows logical tensors (a name, a role, a dtype, a
// shape) and runs of their elements in C order; which rank has which run, and what it is for, is
// the program's business.
//
// # On disk
//
// A checkpoint is a folder:
//
//	step-00000200/
//	    rank-00000-of-00002.safetensors    the runs that rank 0 wrote
//	    rank-00001-of-00002.safetensors    those of rank 1
//	    manifest.json                      what the run was, and which file has which run of which tensor
//
// or has one file, model.safetensors, if Options.Sharded is false. The files are safetensors
// (https://github.com/huggingface/safetensors, "Format"): 8 bytes of little-endian length, a JSON
// header, the data. A run that is a whole tensor has its name and shape; elements 512 to 1024 of w
// are the tensor "w[512:1024]" of one dimension. Order of entries, alignment to 8 and the text of
// the header are those of the reference library, byte for byte.
//
// The manifest has the step, the number of ranks, the settings and their hash, the plan's hash, the
// state of solver, sampler, random numbers and loss scale, the size and CRC-32C of every file, and
// the index. Its last member is the SHA-256 of the text before it. CRC-32C because it is as fast as
// memory (10.8 GB/s on a core of an EPYC, where SHA-256 does 1.6), and what it is there to find is
// a torn or rotten file, not a forged one.
//
// # Saving
//
// All ranks write into step-00000200.tmp. Each file gets its bytes under another name, is flushed
// (fsync), then renamed, and the folder is flushed; beside its file a rank then leaves a small one
// with size, checksum and index. Rank 0 waits for all of these, looking at the file system alone:
// there is no collective in the background, so ranks that train are not held up and a dead rank is
// an error after Options.Timeout that names it. Then it writes the manifest in the same way, and
// renames the folder. So a folder called step-00000200 has been whole from its first moment on; and
// the newest checkpoint is the one with the highest step whose manifest is valid: there is no link
// to update.
//
// A rank that is killed leaves at most a folder that ends in .tmp. New of rank 0 removes such
// leftovers, and finishes those where nothing but the renaming was missing.
//
// An old checkpoint is renamed to step-00000100.removed.tmp before its files are removed. So a
// removal that a kill cuts short leaves nothing that looks damaged: readers leave that folder out,
// and the next New or Save removes it.
//
// # One run at a time
//
// Two runs that save to one folder would remove each other's checkpoints. So rank 0 has a flock on
// the file .lock there from New to Close; the operating system takes it back when the process ends,
// however it does. New of another run is a *LockedError that names the folder and the process.
// Between hosts this is as good as the file system's locks: NFS has them where its lock service
// runs, Lustre where it is mounted with them. Where there are none, or the service does not answer,
// New goes on without, since a run that cannot save is worse, and Saver.Unlocked says why. To read
// takes no lock, so that folders that cannot be written can be read.
//
// Whoever can open a file can flock it, so only users who may write to the folder can open .lock:
// its mode is 0600, with the bits of the group or of all where the folder has them for writing.
//
// # Reading
//
// Open takes the newest checkpoint that is whole: it reads every file once, from several
// goroutines, and compares sizes and checksums. Files that are not regular are refused without
// waiting, and a manifest has at most 64 MiB. One that is torn is passed over, and told by
// Checkpoint.Rejected. Read then fills any run of any tensor from whatever files have it:
//
//	c, err := checkpoint.Open(dir)
//	err = c.Read("w", piece.Offset, piece.Weight)
//
// Memory and files have the same byte order, little-endian; on other machines everything here is
// ErrUnsupported.
package checkpoint
