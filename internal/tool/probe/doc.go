// Package probe examines the machine's support for training: cores, memory, limits, matrix
// libraries, MPI, GPUs and their libraries. It also tests whether a world of ranks works. `symgrad
// doctor` prints its Report.
//
//	r := probe.This(os.Environ(), probe.Child(exe, "doctor-probe"))
//	report := probe.Collect(ctx, r, probe.Options{})
//
// # One function per finding
//
// ReadSystem, ReadCPU, ReadMemory, ReadSharedMemory, ReadLimits, FindBLAS, FindLibraries, FindGPUs,
// SeeLauncher, JudgeEngines, ListBackends and TryWorlds each return plain data, which is also the
// output of --json. They print nothing and return no errors: missing and broken parts are findings,
// with a text. Advise derives remedies from a whole Report.
//
// # All input comes through Roots
//
// The file system, the environment, the sizes of file systems, the creation of shared memory and
// the questions to libraries are fields of Roots. Tests fill it with files recorded on other
// machines.
//
// # Why is each library loaded in another process?
//
// Loading a library can harm a process. MPICH and OpenSHMEM (through UCX) replace the handlers of
// SIGSEGV, SIGBUS, SIGFPE and SIGILL, which Go needs. MKL ends the process when parts of it are
// missing. A driver may hang. Two NCCLs must not share a process. So a child process with a time
// limit loads each library. The child runs Reply, which compares the signal handlers before and
// after, asks for the version, and writes one line. Other output of a library does not disturb that
// line.
//
// No question changes state: no MPI_Init, no CUDA context, no NCCL communicator. NVRTC compiles a
// one-line kernel, because its most often missing part is loaded only then.
package probe
