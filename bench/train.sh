#!/usr/bin/env bash
# Measures a training step of symgrad and of PyTorch's DistributedDataParallel on the GPUs of this
# machine, or on its host, and compares them: see bench/README.md.
#
#   bench/train.sh [--models LIST] [--precisions LIST] [--ranks LIST] [--rounds N] [--steps N] [--warmup N] [--staging yes|no]
#                  [--modes LIST] [--sharded] [--overlap-gather] [--device cuda|cpu] [--set key=value]... [--bin FOLDER] [--compare FILE]
#                  [--python FILE] [--raw FOLDER] [--out FILE]
#
# --models    mlp (784-512-512-10, 128 samples a rank), wide (4096-4096-4096-4096-4096-10, 512), cnn (3x3 convolutions to 32
#             and 64 channels, 3136-128-10, 256), lm (a GPT-2 of 4 layers, width 256, 8 heads, context 128, 16)
# --ranks     numbers of ranks, by default those of 1,2,4 for which there are GPUs
# --modes     of torch.compile, by default default,reduce-overhead, on the host default; '' means none;
#             max-autotune-no-cudagraphs takes minutes
# --sharded   measure shard.stage=1, 2 and 3, ZeroRedundancyOptimizer, and FSDP2 with SHARD_GRAD_OP and FULL_SHARD as well
# --overlap-gather  set shard.overlap_gather=true with shard.stage 1 and 2
# --staging   yes: each step copies the batch from the host to the device, on both sides; no: the batch stays there
# --device    cpu measures on the host, in fp32; torch's ranks then use gloo
# --set       a further setting of symgrad's programs
#
# It needs no Go: --bin is a folder with the programs of the models, examples/ddp (mlp, cnn), examples/mlp (wide) and
# examples/lm, by default bin/dev. --python is a Python with torch; without torch the comparison omits it.
#
# A round measures every model with every precision on every number of ranks, symgrad and torch in turn.
#
# Exit code: that of bench/compare (1 when a criterion does not hold); 2 for an invalid command line or an unsuitable
# machine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Time limit of a run, which a longer run exceeds only if it hangs; torch starts no engine after DEADLINE_S.
readonly LIMIT_S=240
readonly DEADLINE_S=120

models=mlp,wide,cnn,lm
precisions=fp32,tf32
ranks=
rounds=1
steps=200
warmup=20
staging=yes
sharded=no
overlap_gather=no
device=cuda
set=()
bin=
compare=
python=python3
raw=
out=

options "models precisions ranks rounds steps warmup staging modes sharded? overlap_gather? device set+ bin compare python raw out" "$@"
no_more "${rest[@]}"

bin=${bin:-$root/bin/dev}
compare=${compare:-$root/bin/dev/compare}
[ -x "$compare" ] || die "no program $compare: build ./bench/compare there, or set --compare"
for model in ${models//,/ }; do
	case $model in
	mlp | cnn) program=ddp ;;
	wide) program=mlp ;;
	lm) program=lm ;;
	*) die "--models: unknown model $model" ;;
	esac
	[ -x "$bin/$program" ] || die "no program $bin/$program: build ./examples/$program there, or set --bin"
done
for precision in ${precisions//,/ }; do
	case $precision in fp32 | tf32 | bf16) ;; *) die "--precisions: unknown precision $precision" ;; esac
done
case $staging in yes | no) ;; *) die "--staging $staging: use yes or no" ;; esac
for number in "$rounds" "$steps" "$warmup"; do
	[[ $number =~ ^[1-9][0-9]{0,5}$ ]] || die "invalid number \"$number\": want 1 to 999999"
done
gpus=
case $device in
cpu)
	ranks=${ranks:-1,2}
	precisions=fp32
	modes=${modes-default}
	;;
cuda)
	modes=${modes-default,reduce-overhead}
	gpus=$(smi name,pci.bus_id)
	[ -n "$gpus" ] || die "nvidia-smi shows no GPU: nothing to measure, except with --device cpu"
	there=$(wc -l <<<"$gpus")
	if [ -z "$ranks" ]; then
		for n in 1 2 4; do [ "$n" -gt "$there" ] || ranks=$ranks${ranks:+,}$n; done
	fi
	for n in ${ranks//,/ }; do [ "$n" -le "$there" ] || die "--ranks $n: only $there GPUs"; done
	;;
*) die "--device $device: use cuda or cpu" ;;
esac
for n in ${ranks//,/ }; do [[ $n =~ ^[1-9][0-9]?$ ]] || die "--ranks: invalid number \"$n\": want 1 to 99"; done
raw=${raw:-$root/.bench/train/raw}
out=${out:-$root/.bench/train-$device-$(date +%F).json}
rm -rf "$raw"
mkdir -p "$raw/logs"
raw=$(cd "$raw" && pwd)

limit=$LIMIT_S
own_temp
no_multicast
export PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # else torch's launcher warns that it sets it

describe() { # writes session.json
	cat >"$raw/session.json" <<-END
		{
		  "date": $(json "$(date -u +%FT%TZ)"),
		  "device": $(json "$device"),
		  "staging": $(json "$staging"),
		  "host": {
		    "kernel": $(json "$(kernel)"),
		    "cpu": $(json "$(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo)"),
		    "cores": $(env -u OMP_NUM_THREADS nproc),
		    "driver": $(json "$(smi driver_version | sed -n 1p)"),
		    "gpus": [$(json_list <<<"$gpus")]
		  }
		}
	END
}

measure_symgrad() { # MODEL PRECISION RANKS ROUND STAGE
	local side=symgrad
	[ "$5" = 0 ] || side=symgrad-zero$5
	local name=$side.$1.$2.$3.$4 program batch rate=0.001 settings
	case $1 in
	mlp) program=ddp batch=128 settings=(model.name=mlp model.hidden=512,512 data.path="$temp/mnist") ;;
	cnn) program=ddp batch=256 settings=(model.name=cnn model.channels=32,64 model.kernel=3 model.hidden=128 data.path="$temp/mnist") ;;
	wide) program=mlp batch=512 rate=0.0001 settings=(model.name=mlp model.hidden=4096,4096,4096,4096 data.limit=$((512 * $3))) ;;
	lm) program=lm batch=16 settings=(model.name=gpt2 model.layers=4 model.heads=8 model.width=256 model.inner=1024
		model.context=128 model.tied=true data.path="$root/examples/lm/stories.txt") ;;
	esac
	settings+=(data.global_batch=$((batch * $3)) optim.name=adam optim.lr="$rate" run.epochs=0 run.max_steps=$((warmup + steps))
		run.eval=false run.device="$device" launch.nproc_per_node="$3" log.every=$((warmup + steps)) log.progress=none
		shard.stage="$5" run.output_dir="$temp/$name")
	if [ "$overlap_gather" = yes ] && { [ "$5" = 1 ] || [ "$5" = 2 ]; }; then settings+=(shard.overlap_gather=true); fi
	local flags=(--resident --warmup "$warmup")
	if [ "$device" = cuda ]; then
		settings+=(run.precision="$2" run.machine=compiled)
		flags+=(--tune)
		[ "$staging" = yes ] || flags+=(--kept)
	fi
	timed "$name" "$bin/$program" "${settings[@]/#/--set=}" "${set[@]/#/--set=}" "${flags[@]}" --json "$raw/$name.json" || true
	rm -rf "${temp:?}/$name"
}

measure_torch() { # MODEL PRECISION RANKS ROUND
	local flags=(--model "$1" --device "$device" --precision "$2" --text "$root/examples/lm/stories.txt" --steps "$steps" --warmup "$warmup"
		--staging "$staging" --modes "$modes" --deadline "$DEADLINE_S")
	[ "$sharded" = no ] || flags+=(--sharded)
	timed "torch.$1.$2.$3.$4" "$python" -m torch.distributed.run --standalone --nproc-per-node "$3" "$here/train/ddp.py" \
		"${flags[@]}" --out "$raw/torch.$1.$2.$3.$4.json" || true
}

describe
"$python" "$here/train/ddp.py" --write-mnist "$temp/mnist" || die "$python cannot write the images: set --python to another Python"
with_torch=yes
if ! "$python" -c "import torch; assert '$device' == 'cpu' or torch.cuda.is_available()" 2>"$raw/logs/torch.err"; then
	note "no torch for $device in $python: measuring without it ($raw/logs/torch.err)"
	with_torch=no
fi
for ((round = 1; round <= rounds; round++)); do
	for model in ${models//,/ }; do
		for precision in ${precisions//,/ }; do
			for n in ${ranks//,/ }; do
				measure_symgrad "$model" "$precision" "$n" "$round" 0
				if [ "$sharded" = yes ] && [ "$n" -gt 1 ]; then
					for stage in 1 2 3; do measure_symgrad "$model" "$precision" "$n" "$round" "$stage"; done
				fi
				[ "$with_torch" = no ] || measure_torch "$model" "$precision" "$n" "$round"
			done
		done
	done
done
note "measured in $SECONDS s"
code=0
"$compare" train -o "$out" "$raw" || code=$?
exit "$code"
