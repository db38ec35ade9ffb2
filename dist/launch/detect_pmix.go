package launch

// detectPMIx recognizes a rank with only PMIx's variables. PMIx gives the size to libpmix alone, so
// it is read from Slurm, whose srun --mpi=pmix sets these variables.
func detectPMIx(v vars) (Env, bool, error) {
	const rank, job = "PMIX_RANK", "PMIX_NAMESPACE"
	if !v.any(rank) {
		return Env{}, false, nil
	}
	if _, ok := v.slurmStep(); !ok {
		return Env{}, false, v.wrong(rank, "a Slurm step with it, since PMIx gives the number of ranks to its library only; "+
			"set %s, %s, %s and %s instead", rankVar, sizeVar, localRankVar, localSizeVar)
	}
	e, err := v.slurmRanks(rank)
	if err != nil {
		return Env{}, false, err
	}
	e.Launcher, e.Job = PMIx, v[job]
	return e, true, nil
}
