#!/usr/bin/env bash
# Measures the collectives of symgrad between the GPUs of this machine, with every engine, and those
# of torch.distributed and of torch's symmetric memory, and compares them: see bench/README.md.
#
#   bench/gpu.sh [--ranks N] [--rounds N] [--engines LIST] [--ops LIST] [--dtypes LIST] [--min SIZE] [--max SIZE]
#                [--launches N] [--tune FILE] [--symgrad FILE] [--compare FILE] [--python FILE] [--nccl-tests FOLDER]
#                [--raw FOLDER] [--out FILE]
#
# It needs no Go: --symgrad and --compare are the programs cmd/symgrad and bench/compare, by default
# bin/dev/symgrad and bin/dev/compare. --python is a Python with torch; without torch the comparison
# omits it. --tune is a table of symgrad tune for GPUs of this kind, which engine auto uses instead
# of the built-in table. --nccl-tests is a folder with all_reduce_perf, reduce_scatter_perf and
# all_gather_perf.
#
# Ranks of symgrad are pinned to distant cores with --pin, because two ranks on one core would raise
# the host cost.
#
# A round measures symgrad with operations queued on a stream, symgrad with captured graphs, torch
# in both modes, and nccl-tests. In a run of symgrad all engines take turns at every size, so that
# libraries start only once. Results of the first round are checked. With two GPUs a single engine
# takes up to 20 s in each of a round's two runs of symgrad. The first job on a machine also
# compiles kernels.
#
# Exit code: that of bench/compare (1 when a criterion does not hold); 2 for an invalid command line
# or an unsuitable machine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Time limits of a run, and the extra time per engine: a longer run hangs.
readonly LIMIT_S=90
readonly ENGINE_S=30

# Measurements of each row in one run.
readonly TURNS=3

ranks=
rounds=2
engines=nccl,nccl-window,nvshmem,ll,ll128,ll128-twoshot,oneshot,twoshot,tiles,copy,auto
ops=allreduce,reducescatter,allgather
dtypes=f32,bf16
min=1K
max=256M
launches=10
tune=
symgrad=
compare=
python=python3
nccl_tests=
raw=
out=

options "ranks rounds engines ops dtypes min max launches tune symgrad compare python nccl_tests raw out" "$@"
no_more "${rest[@]}"

symgrad=${symgrad:-$root/bin/dev/symgrad}
compare=${compare:-$root/bin/dev/compare}
[ -x "$symgrad" ] || die "no program $symgrad: build ./cmd/symgrad there, or set --symgrad"
[ -x "$compare" ] || die "no program $compare: build ./bench/compare there, or set --compare"
[ -z "$tune" ] || [ -f "$tune" ] || die "--tune $tune: no such file"
[ -z "$nccl_tests" ] || [ -x "$nccl_tests/all_reduce_perf" ] || die "--nccl-tests $nccl_tests: all_reduce_perf is missing"
gpus=$(smi name,pci.bus_id)
[ -n "$gpus" ] || die "nvidia-smi shows no GPU: nothing to measure"
if [ -n "$tune" ]; then
	measured=$(sed -n 's/^"machine": "\(.*\)",$/\1/p' "$tune")
	[ -z "$measured" ] || [ "$measured" = "$(smi name | sed -n 1p)" ] ||
		die "--tune $tune: measured on $measured, but this is $(smi name | sed -n 1p)"
fi
ranks=${ranks:-$(wc -l <<<"$gpus")}
for number in "$ranks" "$rounds" "$launches"; do
	[[ $number =~ ^[1-9][0-9]{0,3}$ ]] || die "invalid number \"$number\": want 1 to 9999"
done
[ "$ranks" -ge 2 ] || die "one GPU only: nothing to compare"
[ "$ranks" -le "$(wc -l <<<"$gpus")" ] || die "--ranks $ranks: only $(wc -l <<<"$gpus") GPUs"
for size in "$min" "$max"; do
	[[ $size =~ ^[1-9][0-9]*[KMG]?$ ]] || die "invalid size \"$size\": want for example 64M"
done
limit=$((LIMIT_S + ENGINE_S * $(tr , '\n' <<<"$engines" | wc -l)))
raw=${raw:-$root/.bench/gpu/raw}
out=${out:-$root/.bench/gpu-$ranks-$(date +%F).json}
rm -rf "$raw"
mkdir -p "$raw/logs"

own_temp
no_multicast
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # else torch's launcher warns that it sets it

describe() { # writes session.json
	local table="the program's own"
	[ -z "$tune" ] || table=sha256:$(sha256sum "$tune" | cut -d' ' -f1)
	cat >"$raw/session.json" <<-END
		{
		  "date": $(json "$(date -u +%FT%TZ)"),
		  "host": {
		    "kernel": $(json "$(kernel)"),
		    "driver": $(json "$(smi driver_version | sed -n 1p)"),
		    "gpus": [$(json_list <<<"$gpus")]
		  },
		  "settings": {
		    "rounds": $rounds, "launches": $launches, "engines": $(json "$engines"), "ops": $(json "$ops"), "dtypes": $(json "$dtypes"),
		    "min": $(json "$min"), "max": $(json "$max"), "table": $(json "$table")
		  }
		}
	END
}

together=yes # engines take turns in one run; otherwise each has its own run, and a failure affects only that engine

symgrad_run() { # NAME ENGINES CHECKS FLAGS...
	local name=$1 list=$2 checks=$3
	shift 3
	timed "$name" "$symgrad" bench --backend cuda --engine "$list" -n "$ranks" --pin --op "$ops" --in-place-of allreduce \
		${tune:+--tune "$tune"} -d "$dtypes" -b "$min" -e "$max" -f 2 --rounds "$TURNS" -c "$checks" --json "$raw/$name.json" "$@"
}

measure_symgrad() { # MODE ROUND FLAGS...
	local mode=$1 round=$2 checks=$(($2 == 1)) engine
	shift 2
	if [ "$together" = yes ]; then
		! symgrad_run "symgrad-$mode-$round" "$engines" "$checks" "$@" || return 0
		[ ! -s "$raw/symgrad-$mode-$round.json" ] || return 0 # it finished, with wrong results
		note "one engine at a time from here on"
		together=no
	fi
	for engine in ${engines//,/ }; do
		symgrad_run "symgrad-$mode-$engine-$round" "$engine" "$checks" "$@" || true
	done
}

measure_torch() { # ROUND
	timed "torch-$1" "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$here/gpu/torch_yardstick.py" \
		--out "$raw" --name "torch-$1" --least "$min" --most "$max" --dtypes "$dtypes" --ops "$ops" --rounds "$TURNS" \
		--launches "$launches" || true
}

measure_tests() { # ROUND: the programs of nccl-tests, in one process
	local pair op dtype
	for pair in allreduce:all_reduce reducescatter:reduce_scatter allgather:all_gather; do
		op=${pair%%:*}
		[[ ",$ops," == *",$op,"* ]] || continue
		for dtype in ${dtypes//,/ }; do
			local type=float
			[ "$dtype" != bf16 ] || type=bfloat16
			timed "nccl-tests.$op.$dtype.$1" "$nccl_tests/${pair##*:}_perf" -g "$ranks" -b "$min" -e "$max" -f 2 -d "$type" \
				-w 5 -n 20 -c 0 -a 3 || continue
			cp "$raw/logs/nccl-tests.$op.$dtype.$1.out" "$raw/nccl-tests.$op.$dtype.$1.txt"
		done
	done
}

describe
with_torch=yes
if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2>"$raw/logs/torch.err"; then
	note "no torch with CUDA in $python: measuring without it ($raw/logs/torch.err)"
	with_torch=no
fi
for ((round = 1; round <= rounds; round++)); do
	measure_symgrad queued "$round"
	[ "$with_torch" = no ] || measure_torch "$round"
	measure_symgrad graph "$round" -G "$launches"
	[ -z "$nccl_tests" ] || measure_tests "$round"
done
note "measured in $SECONDS s"
code=0
"$compare" gpu -o "$out" "$raw" || code=$?
exit "$code"
