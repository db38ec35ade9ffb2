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
//	everything else, one host  rank 0, on unix sockets that only this user's processes may join: in
//	                           a private runtime folder, if there is one, and abstract
//	one rank                   none: the store is memory
//
// The store is also how a death becomes known: a rank whose connection ends without a goodbye, or
// whose process the launcher saw end, makes every pending and later Get of the job fail with a
// dist.RankError that names it.
//
// # Starting ranks
//
// Spawn starts N ranks of a program on this host and watches them. Self does the same with the
// running program, for a configuration that asks for more than one rank of a program started
// plainly. Both return when every process of the job, with the children of the ranks, has ended.
// When a rank fails the others get half of the grace to notice by themselves, then SIGTERM, then
// SIGKILL. The report on stderr starts with the last lines of the rank that failed first. A rank
// that fails only because it lost a peer ends with the exit code ExitPeerLost, and is blamed only
// if no other rank is.
//
// # Environment
//
// This is the one package that reads environment variables, except config, for settings. A child
// gets the environment of its launcher and these; nothing else is set, in particular neither
// GOMAXPROCS nor the thread count of a BLAS:
//
//	SYMGRAD_RANK         rank in the job; SYMGRAD_WORLD_SIZE is their number
//	SYMGRAD_LOCAL_RANK   rank on this host; SYMGRAD_LOCAL_WORLD_SIZE is their number
//	SYMGRAD_JOB          id of the job, unique on this host
//	SYMGRAD_MASTER       host:port of the launcher's store
//	SYMGRAD_STORE_FD     inherited file descriptor with the credentials for the store
//	SYMGRAD_COLUMNS      for rank 0, if the launcher's stdout is a terminal: its width
//	SYMGRAD_BOUND        core, if the launcher gave each rank cores of its own
//	SYMGRAD_HANDOVER_FD  inherited file descriptor with SpawnConfig.Handover, if any
//
// They may also be set by hand, without SYMGRAD_STORE_FD, if no known launcher is present.
// SYMGRAD_JOB overrides the job id of any launcher, for ranks that cannot agree on one by
// themselves.
//
// CUDA_VISIBLE_DEVICES is NVIDIA's: the driver reads it, and this package only to explain the
// visible GPUs of a rank. Env.GPU chooses a rank's GPU among them. SetLibraryVariables sets
// variables of NCCL and NVSHMEM for which they have no other setting.
//
// # Sources
//
// prctl(2): PR_SET_PDEATHSIG fires when the thread that started the child ends,
// PR_SET_CHILD_SUBREAPER; unix(7): abstract addresses and SO_PEERCRED; memfd_create(2). Open MPI,
// MPICH (Hydra), Slurm (srun, "OUTPUT ENVIRONMENT VARIABLES") and torchrun ("Environment
// Variables") document the variables they set.
package launch
