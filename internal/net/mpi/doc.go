// Package mpi is a wire over MPI: Open MPI 4 and 5, the libraries of MPICH's ABI, and those of the
// standard ABI of MPI 5. The library is opened at run time, without cgo.
//
// # Messages
//
// A Send is an MPI_Isend. A Recv is matched in this package: MPI_Improbe takes each message from
// the library when it arrives, and MPI_Imrecv puts it into the buffer of its receive. Nothing moves
// without Progress, also not the rest of a long message whose Send has begun.
//
// # Threads and signals
//
// Open begins MPI on a goroutine that keeps its thread until Close, which ends MPI there. All other
// calls may come from any thread, one at a time (MPI_THREAD_SERIALIZED).
//
// UCX and MPICH take signal handlers that break Go: a nil dereference or a SIGUSR1 ends the
// process. Open and Find put the handlers back.
//
// # A process that is gone
//
// Open MPI from 5.0 on, under "mpirun --with-ft ulfm", reports a process that is gone. Then
// requests with it end with a *wire.PeerError, and the others go on. Other libraries report
// nothing, or end the job. The caller must notice by heartbeats, and call Lose.
//
// A process that has lost another one skips MPI_Finalize in Close, because that may hang. It must
// exit with a status other than 0. Launchers then end the job.
package mpi
