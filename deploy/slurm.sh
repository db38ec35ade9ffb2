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

# All hosts share the folder. Only the owner may read the secret.
export SYMGRAD_SECRET_FILE="$SLURM_SUBMIT_DIR/.symgrad-$SLURM_JOB_ID.secret"
trap 'rm -f "$SYMGRAD_SECRET_FILE"' EXIT
(umask 077 && symgrad secret >"$SYMGRAD_SECRET_FILE")

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export STORE="$first:29500"

# A failed rank ends through the launchers, not through Slurm.
srun --kill-on-bad-exit=0 bash -c '
	exec symgrad run --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --store "$STORE" \
		--max-restarts 10 -n 4 -- "$@"' symgrad-run "$@"
