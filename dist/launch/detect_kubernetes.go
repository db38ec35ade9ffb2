package launch

// indexVar is the variable by which Kubernetes numbers the pods of an Indexed Job or a JobSet.
const indexVar = "JOB_COMPLETION_INDEX"

// detectKubernetes recognizes a pod of an Indexed Job that is one rank. Kubernetes gives the index
// only, so the manifest sets SYMGRAD_WORLD_SIZE to the number of pods. Without it each pod is a job
// of its own.
func detectKubernetes(v vars) (Env, bool, error) {
	if !v.any(indexVar) || !v.any(sizeVar) || v.any(rankVar, localRankVar, localSizeVar, storeFDVar) {
		return Env{}, false, nil
	}
	e, err := v.world(rankVars{rank: indexVar, size: sizeVar})
	if err != nil {
		return Env{}, false, err
	}
	e.Launcher, e.LocalSize, e.Node, e.Nodes = Kubernetes, 1, e.Rank, e.Size
	return e, true, nil
}
