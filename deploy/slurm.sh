#!/bin/bash
# A job on two hosts with four ranks each. Slurm starts one symgrad run per host.
#
#   sbatch deploy/slurm.sh ./train --config run.yaml
#
#SBATCH --job-name=symgrad
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
set -euo pipefail

# srun gives this script's environment to the hosts. The secret is made here, because sbatch would
# store the environment of the shell that submits the job.
SYMGRAD_SECRET=$(symgrad secret)
STORE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):$((20000 + SLURM_JOB_ID % 10000))
export SYMGRAD_SECRET STORE
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # since Slurm 22.05 srun does not take it from sbatch

# A failed rank ends through the launchers, not through Slurm.
srun --export=ALL --kill-on-bad-exit=0 bash -c '
	exec symgrad run --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --store "$STORE" \
		--max-restarts 10 -n 4 -- "$@"' symgrad-run "$@"
