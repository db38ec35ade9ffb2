#!/usr/bin/env bash
# Checks and measures GPUs of several hosts, which it makes of this machine: ranks with different SYMGRAD_HOST share no
# memory, and NCCL takes its sockets between them. See bench/README.md.
#
#   bench/hosts-gpu.sh [--parts LIST] [--bin FOLDER] [--min SIZE] [--max SIZE] [--python FILE] [--raw FOLDER] [--out FILE]
#
# --parts   of tests,train,allreduce, in this order
#   tests      the conformance suite on 2 hosts with 1 and 2 GPUs each, and the worlds that break
#   train      examples/mlp on one host, and on two: the losses must agree
#   allreduce  symgrad's engines, and torch.distributed with NCCL alone over the same sockets, from --min to --max
# --bin     folder of symgrad, mlp and backend.test, by default bin/dev
# --python  a Python with torch; without torch the comparison omits it
#
# It needs mpirun of Open MPI and two GPUs. With fewer than four, two GPUs a host are shared by both hosts, which UCX
# joins; their times say nothing, and are not measured. Results are in --raw (.bench/hosts) as JSON files, and in short
# in --out.
#
# Exit code: 1 when a part failed; 2 for an invalid command line or an unsuitable machine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parts=tests,train,allreduce
bin=
min=1K
max=64M
python=python3
raw=
out=

options "parts bin min max python raw out" "$@"
no_more "${rest[@]}"

bin=$(realpath -m "${bin:-$root/bin/dev}")
raw=$(realpath -m "${raw:-$root/.bench/hosts}")
out=${out:-$raw/hosts-gpu.json}
mkdir -p "$raw/logs"
command -v mpirun >/dev/null || die "no mpirun: install Open MPI (Debian: openmpi-bin)"
for program in symgrad mlp backend.test; do
	[ -x "$bin/$program" ] || die "no program $bin/$program: build it there, or set --bin"
done
gpus=$(smi name)
count=$(grep -c . <<<"$gpus" || true)
[ "$count" -ge 2 ] || die "needs two GPUs, there are $count"
layouts=(1 2)

own_temp
no_multicast
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
limit=120
failed=0

# Runs a program as ranks of two hosts with GPUS each, or of one host with as many. If there are too few, two hosts
# share them, and one host has one rank for each.
job() { # NAME HOSTS GPUS PROGRAM ARGUMENT...
	local name=$1 hosts=$2 each=$3 command=(mpirun --allow-run-as-root --bind-to none) h
	shift 3
	if [ $((hosts * each)) -gt "$count" ]; then
		bin=$bin temp=$temp timed "$name" bash -c "$(declare -f sharing); sharing \"\$@\"" sharing "$@"
		return
	fi
	[ $((2 * each)) -le "$count" ] || each=$((count / 2))
	if [ "$hosts" -eq 1 ]; then
		command+=(-np $((2 * each)) "$@")
	else
		for ((h = 0; h < hosts; h++)); do
			[ "$h" -eq 0 ] || command+=(:)
			command+=(-np "$each" -x "SYMGRAD_HOST=h$h" "$@")
		done
	fi
	timed "$name" "${command[@]}"
}

# Runs a program as two ranks on each of two hosts that share two GPUs.
sharing() { # PROGRAM ARGUMENT...
	local h pids=() rc=0
	(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$temp/secret")
	for h in 0 1; do
		SYMGRAD_HOST=h$h UCX_NET_DEVICES=lo "$bin/symgrad" run --nnodes 2 --node-rank "$h" --store 127.0.0.1:29533 \
			--secret "$temp/secret" -n 2 -- "$@" &
		pids+=($!)
	done
	for h in "${pids[@]}"; do wait "$h" || rc=$?; done
	return $rc
}

run_tests() {
	limit=320
	timed tests "$bin/backend.test" -test.v -test.timeout 300s -test.run 'OverHosts|HierarchicalSums' || failed=1
	grep -E '^ *--- ' "$raw/logs/tests.out" | grep -v -e '--- PASS: .*/.*/.*/' || true
	limit=120
}

train() { # GPUS
	local each=$1 where settings
	settings=(--set comm.backend=cuda --set run.machine=compiled --set model.hidden=1024,1024,1024 --set run.max_steps=30
		--set data.global_batch=256 --set log.losses=true --set run.eval=false)
	for where in 1 2; do
		job "train-$where-$each" "$where" "$each" "$bin/mlp" --config "$root/configs/wide-mlp.yaml" "${settings[@]}" \
			--set "run.output_dir=$temp/run-$where-$each" --json "$raw/train-$where-$each.json" || failed=1
	done
}

allreduce() { # GPUS
	local each=$1 engines=auto,nccl
	[ "$each" -eq 1 ] || engines+=,hier
	job "allreduce-$each" 2 "$each" "$bin/symgrad" bench --backend cuda --engine "$engines" --op allreduce --in-place \
		-b "$min" -e "$max" -f 4 --rounds 3 --json "$raw/allreduce-$each.json" || failed=1
	"$python" -c 'import torch; assert torch.cuda.is_available()' 2>"$raw/logs/torch.err" || return 0
	timed "torch-$each" "$python" -m torch.distributed.run --standalone --nproc-per-node $((2 * each)) "$here/gpu/on_hosts.py" 2 \
		"$here/gpu/torch_yardstick.py" --out "$raw" --name "torch-$each" --least "$min" --most "$max" --dtypes f32 --ops allreduce \
		--rounds 3 --one-shot-most 1 --launches 5 || failed=1
}

for part in ${parts//,/ }; do
	case $part in
	tests) run_tests ;;
	train) for each in "${layouts[@]}"; do train "$each"; done ;;
	allreduce) for each in "${layouts[@]}"; do [ $((2 * each)) -gt "$count" ] || allreduce "$each"; done ;;
	*) die "unknown part \"$part\": use tests, train, allreduce" ;;
	esac
done
note "$SECONDS s"
cat >"$raw/session.json" <<END
{"date": $(json "$(date -u +%FT%TZ)"), "kernel": $(json "$(kernel)"), "driver": $(json "$(smi driver_version | sed -n 1p)"),
"gpus": [$(json_list <<<"$gpus")], "mpi": $(json "$(mpirun --version | sed -n 1p)"), "parts": $(json "$parts")}
END
"$python" "$here/gpu/hosts_table.py" "$raw" "$out" || failed=1
exit $failed
