// Package probe examines this machine for training: cores, memory, limits, matrix libraries, MPI,
// GPUs and their libraries, and whether a world of ranks works. `symgrad doctor` prints the result.
//
//	r := probe.This(os.Environ(), probe.Child(exe, "doctor-probe"))
//	report := probe.Collect(ctx, r, probe.Options{})
//
// # One function a finding
//
// ReadSystem, ReadCPU, ReadMemory, ReadSharedMemory, ReadLimits, FindBLAS, FindLibraries, FindGPUs,
// SeeLauncher, JudgeEngines, ListBackends and TryWorlds each answer one question with plain data,
// which --json prints as well. Nothing here prints, and nothing here is an error of the program:
// missing and broken parts are described in the answer. Advise turns a whole Report into advice.
//
// # Everything comes in through Roots
//
// The file system, the environment, the sizes of file systems, the attempt to make shared memory
// and the question to a library are fields of Roots. Tests give it trees of files from other
// machines.
//
// # Why does another process ask the libraries?
//
// A library does not only answer: loading MPICH or OpenSHMEM (through UCX) takes over the handlers
// of SIGSEGV, SIGBUS, SIGFPE and SIGILL, which Go needs; MKL ends the process when parts of it are
// missing; a driver may hang; two NCCLs in one process are one too many. So every library is loaded
// by a child process of its own, which has a time limit and may die. Such a child runs Answer: it
// compares the signal handlers before and after, asks for the version, and writes one line. Other
// output of a library does not disturb that line.
//
// Nothing is asked that costs state: no MPI_Init, no CUDA context, no NCCL communicator. NVRTC
// compiles a kernel of one line, because the part of it that is most often missing is loaded only
// then.
package probe
