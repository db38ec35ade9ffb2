// Package launch starts the ranks of a job, identifies each rank, and runs their rendezvous.
//
// # Files
//
//	env.go, vars.go, detect_*.go            Env: rank and launcher of this process
//	rendezvous.go, host.go                  where ranks meet
//	server*.go, client.go, dial.go          the store, its protocol and TLS (listen.go, meeting.go,
//	                                        table.go, frame.go, credentials.go)
//	spawn*.go, child_linux.go               starting ranks (bind*.go)
//	nodes*.go, secret.go                    launchers of several hosts
//	restart.go, marks*.go                   restarts of failed jobs
//	supervise_linux.go, report.go, exit.go  signals, failures, exit codes (orphans_linux.go)
//	output.go, tail.go, lastword.go         output of the ranks
//	device.go                               which GPU belongs to a rank
//
// # Which rank is this process?
//
// Detect reads an environment. It knows this project's launcher, Open MPI, MPICH and its relatives,
// torchrun, PMIx, Slurm and Indexed Jobs of Kubernetes. An environment without any of them is one
// rank of one. A wrong or incomplete set of variables is an EnvError, never a guess.
//
// # How do ranks meet?
//
// Rendezvous gives every rank the same dist.Store and returns when all ranks have arrived. The
// server of the store depends on the launcher:
//
//	symgrad run, Self          the launcher, over TCP with mutual TLS 1.3
//	everything else, one host  rank 0, on unix sockets that only this user's processes may join:
//	                           in a private runtime folder, if any, and abstract
//	..., several hosts         rank 0, over TCP with mutual TLS 1.3, if the ranks have a secret
//	one rank                   no server: the store is memory
//
// The store also detects deaths. If a rank's connection ends without a goodbye, or the launcher saw
// its process end, every pending and later Get of the job fails with a dist.RankError that names
// the rank.
//
// # Several hosts
//
// Each host of a job has a launcher. The launcher of node 0 serves the store; the others join it,
// and tell it the number of their ranks. Ranks are numbered node by node. The launchers have a
// Secret in common. HKDF derives from it the key of a certificate authority, so that each launcher
// can issue certificates and check those of others; the secret itself does not travel. Ranks have
// certificates of a second authority, derived from the secret and the job id, so that a rank's
// certificate is of no use in another job.
//
// Launchers report the ends of their ranks to node 0, which notifies all launchers of the first
// failure and at the end of the verdict: the exit code of all. They show each second that they
// live; after 3.5 s of silence a launcher is lost. The job has succeeded if all ranks exited with
// code 0, and those that joined the store also left it: the goodbye of rank 0 is its mark.
//
// # Restarts
//
// With SpawnConfig.MaxRestarts the launcher starts a failed job again, on several hosts together
// with the other launchers. Each start is a generation: it has a store, credentials and a job id of
// its own. Launchers that join tell the least generation they take part in, and all take the
// greatest: so a launcher whose host was started anew joins, on node 0 too. Ranks mark the steps
// that they begin (Marks): a rank that fails twice in a row at one step ends the job.
//
// # Starting ranks
//
// Spawn starts N ranks of a program on this host and watches them. Self does the same with the
// running program, if its configuration asks for several ranks and it was started without a
// launcher. Both return when every process of the job is gone, children of the ranks included. When
// a rank fails, the others get half of the grace to notice, then SIGTERM, then SIGKILL. The report
// on stderr starts with the last lines of the rank that failed first. A rank that fails only
// because it lost a peer exits with ExitPeerLost, and is blamed only if no other rank can be.
//
// # Environment
//
// Only this package, and config for settings, read environment variables. A child gets the
// environment of its launcher and these variables; in particular neither GOMAXPROCS nor the thread
// count of a BLAS is set:
//
//	SYMGRAD_RANK, SYMGRAD_WORLD_SIZE              rank and size in the job
//	SYMGRAD_LOCAL_RANK, SYMGRAD_LOCAL_WORLD_SIZE  rank and size on this host
//	SYMGRAD_NODE, SYMGRAD_NODES                   index of this host, and number of hosts
//	SYMGRAD_JOB                                   id of the job, unique on this host
//	SYMGRAD_MASTER                                host:port of the launcher's store
//	SYMGRAD_STORE_FD                              inherited descriptor with credentials for it
//	SYMGRAD_COLUMNS                               rank 0: width of the launcher's terminal, if any
//	SYMGRAD_BOUND                                 core, if the launcher gave each rank its own cores
//	SYMGRAD_HANDOVER_FD                           inherited descriptor with SpawnConfig.Handover
//	SYMGRAD_RESTARTS                              times that the job began again, if any
//	SYMGRAD_MARKS                                 file and key of Marks, if the job may begin again
//	SYMGRAD_HOST                                  name of the host, set by users
//
// A launcher of several hosts reads SYMGRAD_SECRET, the secret of the job, or SYMGRAD_SECRET_FILE,
// a file with it. It does not pass them on to ranks. Ranks that torchrun, srun or Kubernetes starts
// on several hosts read them too, and SYMGRAD_MASTER for the address at which rank 0 listens.
// SYMGRAD_MASTER=:PORT takes the host from torchrun or Slurm.
//
// The other variables may also be set by hand, without SYMGRAD_STORE_FD, if no known launcher is
// used. SYMGRAD_JOB overrides the job id of any launcher. The error of ranks that cannot agree on
// an id names this variable.
//
// SYMGRAD_HOST makes several hosts of one machine, for tests: ranks with different names share no
// memory, as if they were on different machines.
//
// CUDA_VISIBLE_DEVICES is NVIDIA's: the driver reads it, and this package only to explain which
// GPUs a rank sees. Env.GPU chooses a rank's GPU among the visible ones. SetLibraryVariables sets
// the options that NCCL and NVSHMEM read only from the environment.
//
// # Sources
//
// prctl(2): PR_SET_PDEATHSIG fires when the thread that started the child ends,
// PR_SET_CHILD_SUBREAPER; unix(7): abstract addresses and SO_PEERCRED; memfd_create(2). Open MPI,
// MPICH (Hydra), Slurm (srun, "OUTPUT ENVIRONMENT VARIABLES") and torchrun ("Environment
// Variables") document the variables they set.
package launch
