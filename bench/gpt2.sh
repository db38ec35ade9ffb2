#!/usr/bin/env bash
# Trains GPT-2 with symgrad and with PyTorch, from the same weights and with the same tokens, on the GPUs of this machine,
# and compares the losses of all steps, the times of a step, and the memory: see bench/README.md.
#
#   bench/gpt2.sh [--ranks LIST] [--batch N] [--steps N] [--layers N] [--width N] [--heads N] [--context N] [--precision NAME]
#                 [--modes LIST] [--set key=value]... [--bin FOLDER] [--compare FILE] [--python FILE] [--raw FOLDER] [--out FILE]
#
# --ranks     numbers of ranks, by default those of 1,2,4 for which there are GPUs
# --batch     samples of a step and rank (32)
# --layers, --width, --heads, --context   the model, by default GPT-2 with 124 million parameters: 12, 768, 12, 1024
# --modes     of torch.compile, beside eager torch, by default default; '' means none
# --set       a further setting of examples/gpt2
#
# It needs no Go: --bin is a folder with examples/gpt2, by default bin/dev. --python is a Python with torch and transformers,
# which also makes the weights and the tokens (train/gpt2.py).
#
# Exit code: that of bench/compare (1 when a criterion does not hold); 2 for an invalid command line or an unsuitable machine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly LIMIT_S=400 # time limit of a run, which a longer run exceeds only if it hangs

ranks=
batch=32
steps=300
layers=12
width=768
heads=12
context=1024
precision=bf16
modes=default
set=()
bin=
compare=
python=python3
raw=
out=

options "ranks batch steps layers width heads context precision modes set+ bin compare python raw out" "$@"
no_more "${rest[@]}"

bin=${bin:-$root/bin/dev}
compare=${compare:-$root/bin/dev/compare}
[ -x "$compare" ] || die "no program $compare: build ./bench/compare there, or set --compare"
[ -x "$bin/gpt2" ] || die "no program $bin/gpt2: build ./examples/gpt2 there, or set --bin"
for number in "$batch" "$steps" "$layers" "$width" "$heads" "$context"; do
	[[ $number =~ ^[1-9][0-9]{0,5}$ ]] || die "invalid number \"$number\": want 1 to 999999"
done
[ "$steps" -ge 60 ] || die "--steps $steps: want at least 60, of which the first 20 are not timed"
gpus=$(smi name,pci.bus_id)
[ -n "$gpus" ] || die "nvidia-smi shows no GPU"
there=$(wc -l <<<"$gpus")
if [ -z "$ranks" ]; then
	for n in 1 2 4; do [ "$n" -gt "$there" ] || ranks=$ranks${ranks:+,}$n; done
fi
for n in ${ranks//,/ }; do
	[[ $n =~ ^[1-9][0-9]?$ && $n -le $there ]] || die "--ranks $n: want 1 to $there, the number of GPUs"
done
raw=${raw:-$root/.bench/gpt2/raw}
out=${out:-$root/.bench/gpt2-$(date +%F).json}
rm -rf "$raw"
mkdir -p "$raw/logs"
raw=$(cd "$raw" && pwd)

limit=$LIMIT_S
own_temp
no_multicast
export PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # else torch's launcher warns that it sets it

readonly WARMUP=$((steps / 10)) RATE=0.0006 LEAST=0.00006

measure_symgrad() { # RANKS
	local name=symgrad.$1 settings
	settings=(model.pretrained="$temp/made/initial" model.context="$context" data.path="$temp/made/train.bin" data.val_path= data.shuffle=false
		data.global_batch=$((batch * $1)) data.accum_steps=1 optim.lr="$RATE" optim.schedule.min_lr="$LEAST"
		optim.schedule.warmup_steps="$WARMUP" run.max_steps="$steps" run.eval=false run.device=cuda run.precision="$precision"
		launch.nproc_per_node="$1" log.every="$steps" log.losses=true log.progress=none run.output_dir="$temp/$name" checkpoint.dir=)
	timed "$name" "$bin/gpt2" --config "$root/configs/gpt2.yaml" "${settings[@]/#/--set=}" "${set[@]/#/--set=}" --warmup 20 \
		--json "$raw/$name.times.json" || true
	cp "$temp/$name/summary.json" "$raw/$name.summary.json" || true
}

measure_torch() { # RANKS MODE
	local name=torch${2:+-compile-$2}.$1
	timed "$name" "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" "$here/train/gpt2.py" --weights "$temp/made/initial" \
		--tokens "$temp/made/train.bin" --batch $((batch * $1)) --steps "$steps" --warmup "$WARMUP" --rate "$RATE" --least "$LEAST" \
		--precision "$precision" --mode "$2" --out "$raw/$name.json" || true
}

cat >"$raw/session.json" <<-END
	{
	  "date": $(json "$(date -u +%FT%TZ)"),
	  "model": {"layers": $layers, "width": $width, "heads": $heads, "context": $context},
	  "steps": $steps,
	  "host": {
	    "kernel": $(json "$(kernel)"),
	    "driver": $(json "$(smi driver_version | sed -n 1p)"),
	    "gpus": [$(json_list <<<"$gpus")]
	  }
	}
END
most=$(tr , '\n' <<<"$ranks" | sort -n | tail -n 1)
"$python" "$here/train/gpt2.py" --make "$temp/made" --layers "$layers" --width "$width" --heads "$heads" --context "$context" \
	--tokens $((batch * most * steps * context + 1)) || die "$python cannot make weights and tokens: it needs torch and transformers"
for n in ${ranks//,/ }; do
	measure_symgrad "$n"
	measure_torch "$n" ''
	for mode in ${modes//,/ }; do measure_torch "$n" "$mode"; done
done
note "measured in $SECONDS s"
code=0
"$compare" gpt2 -o "$out" "$raw" || code=$?
exit "$code"
