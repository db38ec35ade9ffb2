package launch

import (
	"strconv"
	"strings"
)

// slurmMaxStep is SLURM_MAX_NORMAL_STEP_ID of slurm.h. Ids above it are not steps of srun but the
// batch script (0xfffffffb), the shell of salloc (0xfffffffa) and others: one process, whatever
// SLURM_NTASKS says.
const slurmMaxStep = 0xfffffff0

// slurmStep returns the id of the Slurm step of this task. SLURM_PROCID alone proves nothing: all
// processes under salloc and sbatch inherit one.
func (v vars) slurmStep() (step uint64, ok bool) {
	step, err := strconv.ParseUint(v["SLURM_STEP_ID"], 10, 32)
	return step, err == nil && step <= slurmMaxStep
}

func detectSlurm(v vars) (Env, bool, error) {
	const rank, job = "SLURM_PROCID", "SLURM_JOB_ID"
	step, ok := v.slurmStep()
	if !ok || !v.any(rank) {
		return Env{}, false, nil
	}
	e, err := v.slurmRanks(rank)
	if err != nil {
		return Env{}, false, err
	}
	if !v.any(job) {
		return Env{}, false, v.wrong(job, "the id of the job, because SLURM_STEP_ID=%d is set", step)
	}
	e.Launcher, e.Job = Slurm, v[job]+"."+strconv.FormatUint(step, 10)
	return e, true, nil
}

// slurmRanks reads the four numbers of a task of a Slurm step; the rank from rankName.
func (v vars) slurmRanks(rankName string) (Env, error) {
	const localRank, perNode, node = "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"
	size := "SLURM_STEP_NUM_TASKS"
	if !v.any(size) {
		size = "SLURM_NTASKS"
	}
	e, err := v.world(rankVars{rank: rankName, size: size})
	if err != nil {
		return Env{}, err
	}
	if e.Size == 1 {
		e.LocalSize, e.Nodes = 1, 1
		return e, nil
	}
	index, err := v.number(node, "the index of this node in the step", 0, maxRanks-1)
	if err != nil {
		return Env{}, err
	}
	local, total, nodes, ok := tasksPerNode(v[perNode], index)
	switch {
	case !ok:
		return Env{}, v.wrong(perNode, `tasks per node such as "4(x2),3"`)
	case total != e.Size:
		return Env{}, v.wrong(perNode, "%d tasks in all, as %s says", e.Size, size)
	case local == 0:
		return Env{}, v.wrong(perNode, "tasks for node %d, as %s says", index, node)
	}
	e.LocalSize, e.Node, e.Nodes = local, index, nodes
	if e.LocalRank, err = v.number(localRank, "a rank of this host", 0, local-1); err != nil {
		return Env{}, err
	}
	return e, nil
}

// tasksPerNode reads Slurm's "4(x2),3": two nodes with 4 tasks each, one with 3. It returns the
// tasks of the node with this index, 0 if the list ends before it, and of all nodes, and the number
// of nodes.
func tasksPerNode(list string, index int) (local, total, nodes int, ok bool) {
	for item := range strings.SplitSeq(list, ",") {
		tasks, repeat := item, "1"
		if head, tail, found := strings.Cut(item, "(x"); found {
			if tail, found = strings.CutSuffix(tail, ")"); !found {
				return 0, 0, 0, false
			}
			tasks, repeat = head, tail
		}
		n, okN := parseNumber(tasks)
		r, okR := parseNumber(repeat)
		if !okN || !okR || n < 1 || r < 1 || n > maxRanks || r > maxRanks {
			return 0, 0, 0, false
		}
		if index >= nodes && index < nodes+r {
			local = n
		}
		nodes += r
		if total += n * r; total > maxRanks {
			return 0, 0, 0, false
		}
	}
	return local, total, nodes, true
}

// firstOfHosts returns the first name of Slurm's "node[03-05,9],big1": node03. It is the host of
// rank 0.
func firstOfHosts(list string) string {
	var b strings.Builder
	for list != "" {
		before, after, bracket := strings.Cut(list, "[")
		if name, _, end := strings.Cut(before, ","); end || !bracket {
			return b.String() + name
		}
		numbers, rest, _ := strings.Cut(after, "]")
		b.WriteString(before + numbers[:len(numbers)-len(strings.TrimLeft(numbers, "0123456789"))])
		list = rest
	}
	return b.String()
}
