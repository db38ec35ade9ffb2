package launch

// detectMPICH recognizes Hydra, the mpiexec of MPICH and Intel MPI, which gives no job id. srun
// --mpi=pmi2 sets PMI_RANK and PMI_SIZE but not the local numbers: such a rank is Slurm's.
func detectMPICH(v vars) (Env, bool, error) {
	names := rankVars{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}
	_, inStep := v.slurmStep()
	if !v.any(names.localRank, names.localSize) && (inStep || !v.any(names.rank, names.size)) {
		return Env{}, false, nil
	}
	e, err := v.ranks(names)
	if err != nil {
		return Env{}, false, err
	}
	e.guessNodes() // the variables number ranks only
	e.Launcher = MPICH
	return e, true, nil
}
