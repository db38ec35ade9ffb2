package launch

// detectOpenMPI recognizes mpirun and oshrun of Open MPI 4 and 5. The job id is PMIx's, which both
// set; 4.x sets OMPI_MCA_ess_base_jobid too.
func detectOpenMPI(v vars) (Env, bool, error) {
	names := rankVars{
		"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
	}
	if !v.any(names.all()...) {
		return Env{}, false, nil
	}
	e, err := v.ranks(names)
	if err != nil {
		return Env{}, false, err
	}
	e.guessNodes() // the variables number ranks only
	e.Launcher = OpenMPI
	if e.Job = v["PMIX_NAMESPACE"]; e.Job == "" {
		e.Job = v["OMPI_MCA_ess_base_jobid"]
	}
	return e, true, nil
}
