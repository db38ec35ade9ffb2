package launch

import (
	"fmt"
	"net"
	"strings"
)

// The launchers that Detect knows, in its order.
const (
	Kubernetes = "kubernetes" // an Indexed Job with SYMGRAD_WORLD_SIZE: each pod is a rank
	Symgrad    = "symgrad"    // Spawn, Self, or SYMGRAD_* set by hand
	OpenMPI    = "openmpi"    // mpirun, oshrun
	MPICH      = "mpich"      // mpiexec of MPICH (Hydra), Intel MPI, MVAPICH
	Torchrun   = "torchrun"   // torchrun, or its variables set by hand or by an operator
	PMIx       = "pmix"       // srun --mpi=pmix
	Slurm      = "slurm"      // srun
	None       = "none"       // no launcher: one rank
)

// Env identifies a rank, from its launcher's variables.
type Env struct {
	Rank, Size           int    // in the job
	LocalRank, LocalSize int    // among the ranks of this host
	Node                 int    // index of this host; -1 if the launcher does not number hosts
	Nodes                int    // number of hosts; 0 if unknown
	Launcher             string // Symgrad, OpenMPI, ...
	Job                  string // equal on all ranks, unique on this host; "" if the launcher gives none
	Master               string // host:port of the store, or where rank 0 may serve one; "" if unknown
	StoreFD              int    // descriptor with the credentials for the launcher's store at Master, or 0
	Columns              int    // width of the terminal that shows this rank's output, or 0
	Bound                bool   // the launcher gave this rank cores that no other rank uses
	HandoverFD           int    // descriptor with SpawnConfig.Handover of the launcher, or 0
	Restarts             int    // times that the launcher has started this job again after a failure
	Host                 string // name that sets ranks apart from others of this machine; "" for none

	marks   string  // file and key of Marks, or ""
	secret  *Secret // of a job on several hosts whose launcher gives no credentials; nil without
	from    string  // the variable that Rank was read from
	runtime string  // the user's folder for sockets, from the environment, or ""
}

// Detect identifies the process with this environment. It tries the launchers in the order of their
// constants: an MPI launcher or torchrun inside a Slurm allocation keeps Slurm's variables of the
// allocation. The local numbers may be missing in a job of one rank.
//
// Shapes/units: environ as from os.Environ; the last of several values counts, and an empty value
// counts as unset. Errors: *EnvError for a variable that its launcher would not set so, or a
// missing one if others of that launcher are set.
func Detect(environ []string) (Env, error) {
	v := newVars(environ)
	e := Env{Size: 1, LocalSize: 1, Nodes: 1, Launcher: None}
	for _, detect := range []func(vars) (Env, bool, error){
		detectKubernetes, detectSymgrad, detectOpenMPI, detectMPICH, detectTorchrun, detectPMIx, detectSlurm,
	} {
		found, ok, err := detect(v)
		if err != nil {
			return Env{}, err
		}
		if ok {
			e = found
			break
		}
	}
	if job := v[jobVar]; job != "" {
		e.Job = job
	}
	if v.any(restartsVar) {
		n, err := v.number(restartsVar, "the launcher's number of restarts", 0, maxRanks)
		if err != nil {
			return Env{}, err
		}
		e.Restarts = n
	}
	e.marks = v[marksVar]
	e.runtime = v["XDG_RUNTIME_DIR"]
	if e.StoreFD == 0 && !e.OneHost() {
		if err := e.takeMeeting(v); err != nil {
			return Env{}, err
		}
	}
	e.Host = v[hostVar]
	if err := e.Validate(); err != nil {
		return Env{}, err
	}
	return e, nil
}

// takeMeeting reads where ranks meet that a launcher without a store has started on several hosts,
// and their secret. An address without a host takes the host of rank 0 from the launcher.
func (e *Env) takeMeeting(v vars) error {
	s, err := secretOf(v)
	if err != nil {
		return err
	}
	if !s.none() {
		e.secret = &s
	}
	if !v.any(masterVar) {
		return nil
	}
	e.Master = v[masterVar]
	if port, ok := strings.CutPrefix(e.Master, ":"); ok {
		e.Master = net.JoinHostPort(e.firstHost(v), port)
	}
	if !validAddress(e.Master) {
		return v.wrong(masterVar, "host:port of rank 0, port 1 to 65535; :port where the launcher names the host (torchrun, srun)")
	}
	return nil
}

// firstHost returns the host of rank 0, if the launcher names it.
func (e *Env) firstHost(v vars) string {
	switch e.Launcher {
	case Torchrun:
		return v["MASTER_ADDR"]
	case Slurm, PMIx:
		return firstOfHosts(v["SLURM_STEP_NODELIST"])
	default:
		return ""
	}
}

// Validate returns an error for the first impossible value of e.
func (e Env) Validate() error {
	switch {
	case e.Size < 1 || e.Size > maxRanks:
		return fmt.Errorf("launch: size %d: want 1 to %d", e.Size, maxRanks)
	case e.Rank < 0 || e.Rank >= e.Size:
		return fmt.Errorf("launch: rank %d: want 0 to %d", e.Rank, e.Size-1)
	case e.LocalSize < 1 || e.LocalSize > e.Size:
		return fmt.Errorf("launch: local size %d: want 1 to %d", e.LocalSize, e.Size)
	case e.LocalRank < 0 || e.LocalRank >= e.LocalSize:
		return fmt.Errorf("launch: local rank %d: want 0 to %d", e.LocalRank, e.LocalSize-1)
	case e.Nodes < 0 || e.Nodes > e.Size:
		return fmt.Errorf("launch: %d nodes: want 1 to %d, or 0 for unknown", e.Nodes, e.Size)
	case e.Nodes > 0 && (e.Node < 0 || e.Node >= e.Nodes):
		return fmt.Errorf("launch: node %d: want 0 to %d", e.Node, e.Nodes-1)
	case e.StoreFD != 0 && e.Master == "":
		return fmt.Errorf("launch: store fd %d without a master", e.StoreFD)
	}
	return nil
}

// OneHost reports whether all ranks of the job are on this host. With a Host that is unknown, and
// the result is false.
func (e Env) OneHost() bool { return e.LocalSize == e.Size && e.Nodes <= 1 && e.Host == "" }

// String returns "rank 2 of 4 (2 of 4 on this host), started by openmpi, job 1234".
func (e Env) String() string {
	s := fmt.Sprintf("rank %d of %d (%d of %d on this host), started by %s", e.Rank, e.Size, e.LocalRank, e.LocalSize, e.Launcher)
	if e.Job != "" {
		s += ", job " + e.Job
	}
	return s
}

// CheckMeeting returns the error with which Rendezvous would refuse e's job at once, such as
// several hosts without a secret; nil if its ranks have a place to meet.
func (e Env) CheckMeeting() error {
	if e.Size == 1 || e.StoreFD != 0 {
		return nil
	}
	_, err := e.place()
	return err
}

// MostHandover is the largest SpawnConfig.Handover in bytes.
const MostHandover = 64 << 20

// Handover returns SpawnConfig.Handover of the launcher that started this rank: data that the
// launcher read once for all ranks. A pipe has only one reader, and a file may change between the
// starts of two ranks.
//
// Returns: nil without a handover. Errors: an inherited descriptor that is no longer open.
func (e Env) Handover() ([]byte, error) {
	if e.HandoverFD == 0 {
		return nil, nil
	}
	data, err := readInherited(e.HandoverFD, MostHandover)
	if err != nil {
		return nil, fmt.Errorf("launch: read the launcher's handover, descriptor %d (%s): %w", e.HandoverFD, handoverVar, err)
	}
	return data, nil
}

// guessNodes sets the nodes of a launcher that does not number them.
func (e *Env) guessNodes() {
	e.Node, e.Nodes = -1, 0
	if e.LocalSize == e.Size {
		e.Node, e.Nodes = 0, 1
	}
}
