// Package launch starts the ranks of a job, tells each who it is, and lets them meet.
//
// # Who am I
//
// Detect reads an environment and knows this project's launcher, Open MPI, MPICH (and its kin),
// torchrun, PMIx and Slurm. An environment that names none of them is one rank of one. A variable
// that is wrong or half set is an EnvError, never a guess.
//
// # Meeting
//
// Rendezvous gives every rank the same dist.Store and returns when all have arrived. Who serves the
// store depends on who started the ranks:
//
//	symgrad run, Self          the launcher, over TCP with mutual TLS 1.3
//	everything else, one host  rank 0, on unix sockets that only this user's processes may join: in a private runtime
//	                           folder, where there is one, and abstract
//	one rank                   nobody: the store is memory
//
// The store is also how a death becomes known: a rank whose connection ends without a goodbye, or
// whose process the launcher saw end, makes every pending and later Get of the job fail with a
// dist.RankError that names it.
//
// # Starting ranks
//
// Spawn starts N ranks of a program on this host and watches them; Self does the same with the
// running program, for a configuration that asks for more than one rank of a program started
// plainly. Both return when every process of the job, children of the ranks included, is gone. When
// a rank fails the others get half of the grace to notice by themselves, then SIGTERM, then
// SIGKILL; the report on stderr starts with the last lines of the rank that failed first. A rank
// that fails only because it lost a peer says so with the exit code ExitPeerLost, and is blamed
// only when nobody else is to blame.
//
// # Environment
//
// This is the one package that reads environment variables (besides config, for settings). A child
// gets the environment of its launcher and these; nothing else is set, in particular neither
// GOMAXPROCS nor the thread count of a BLAS:
//
//	SYMGRAD_RANK, SYMGRAD_WORLD_SIZE              who it is in the job
//	SYMGRAD_LOCAL_RANK, SYMGRAD_LOCAL_WORLD_SIZE  who it is on this host
//	SYMGRAD_JOB                                   id of the job, unique on this host
//	SYMGRAD_MASTER                                host:port of the launcher's store
//	SYMGRAD_STORE_FD                              inherited file descriptor that holds the credentials for it
//	SYMGRAD_COLUMNS                               rank 0, if the launcher's stdout is a terminal: its width
//	SYMGRAD_BOUND                                 core, if the launcher gave each rank cores of its own
//	SYMGRAD_HANDOVER_FD                           inherited file descriptor that holds SpawnConfig.Handover, if there is one
//
// They may also be set by hand, without SYMGRAD_STORE_FD, where no known launcher is at work.
// SYMGRAD_JOB overrides the job id of any launcher: ranks that cannot agree on one by themselves
// are told.
//
// CUDA_VISIBLE_DEVICES is NVIDIA's: the driver reads it, and this package only to explain what a
// rank sees. Env.GPU says which of the GPUs that are left is a rank's. SetLibraryVariables tells
// NCCL and NVSHMEM what they take from nowhere else.
//
// # Sources
//
// prctl(2): PR_SET_PDEATHSIG fires when the thread that started the child ends,
// PR_SET_CHILD_SUBREAPER; unix(7): abstract addresses and SO_PEERCRED; memfd_create(2). Open MPI,
// MPICH (Hydra), Slurm (srun, "OUTPUT ENVIRONMENT VARIABLES") and torchrun ("Environment
// Variables") document the variables they set.
package launch
