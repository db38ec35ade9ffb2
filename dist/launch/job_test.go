//go:build linux

package launch

import (
	"fmt"
	"sync"
	"testing"
)

// Under every launcher all ranks have one id of the job, whether the launcher gives one or not. An
// id that is given stays.
func TestAllRanksHaveOneIDOfTheJob(t *testing.T) {
	for name, c := range map[string]struct {
		variables func(rank int) []string
		want      string // "" means one that rank 0 makes
	}{
		Symgrad: {func(r int) []string {
			return append(numbers(r, "SYMGRAD_RANK", "SYMGRAD_WORLD_SIZE", "SYMGRAD_LOCAL_RANK", "SYMGRAD_LOCAL_WORLD_SIZE"), "SYMGRAD_JOB=j1")
		}, "j1"},
		OpenMPI: {func(r int) []string {
			return append(numbers(r, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), "PMIX_NAMESPACE=p.1")
		}, "p.1"},
		MPICH: {func(r int) []string {
			return numbers(r, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
		}, ""},
		MPICH + " with SYMGRAD_JOB": {func(r int) []string {
			return append(numbers(r, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), "SYMGRAD_JOB=mine")
		}, "mine"},
		Torchrun: {func(r int) []string {
			return append(numbers(r, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=r", "TORCHELASTIC_RESTART_COUNT=0")
		}, "r/127.0.0.1:29500/0"},
		Torchrun + " with its agent": {func(r int) []string {
			return append(numbers(r, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), "TORCHELASTIC_USE_AGENT_STORE=True")
		}, ""},
		PMIx: {func(r int) []string {
			return append(slurm(r), fmt.Sprint("PMIX_RANK=", r), "PMIX_NAMESPACE=slurm.pmix.7.0")
		}, "slurm.pmix.7.0"},
		Slurm: {slurm, "7.0"},
		None:  {func(int) []string { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := &single{newTable()} // of ranks that have met
			envs := make([]Env, 2)
			if name == None {
				envs = envs[:1] // each process is a job
			}
			var all sync.WaitGroup
			for r := range envs {
				e, err := Detect(c.variables(r))
				if err != nil {
					t.Fatal(err)
				}
				envs[r] = e
				all.Go(func() {
					if err := NameJob(t.Context(), &envs[r], store); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if job := envs[0].Job; job == "" || envs[len(envs)-1].Job != job || c.want != "" && job != c.want {
				t.Errorf("job %q of rank 0 and %q of the last, want %q", job, envs[len(envs)-1].Job, c.want)
			}
		})
	}
}

// numbers is the variables of a rank of two on one host.
func numbers(rank int, rankName, sizeName, localRank, localSize string) []string {
	return []string{
		fmt.Sprint(rankName, "=", rank), sizeName + "=2", fmt.Sprint(localRank, "=", rank), localSize + "=2",
	}
}

func slurm(rank int) []string {
	return []string{
		fmt.Sprint("SLURM_PROCID=", rank), "SLURM_NTASKS=2", fmt.Sprint("SLURM_LOCALID=", rank), "SLURM_STEP_TASKS_PER_NODE=2",
		"SLURM_NODEID=0", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0",
	}
}
