package launch

// detectPMIx knows a rank of which only PMIx tells. PMIx gives the size to libpmix alone, so it is
// read from Slurm, whose srun --mpi=pmix is where this is met.
func detectPMIx(v vars) (Env, bool, error) {
	const rank, job = "PMIX_RANK", "PMIX_NAMESPACE"
	if !v.any(rank) {
		return Env{}, false, nil
	}
	if _, ok := v.slurmStep(); !ok {
		return Env{}, false, v.wrong(rank, "it without a Slurm step, for PMIx gives the number of ranks only to its library; "+
			"set %s, %s, %s and %s instead", rankVar, sizeVar, localRankVar, localSizeVar)
	}
	e, err := v.slurmRanks(rank)
	if err != nil {
		return Env{}, false, err
	}
	e.Launcher, e.Job = PMIx, v[job]
	return e, true, nil
}
