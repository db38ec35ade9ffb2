#!/usr/bin/env bash
# Trains GPT-2 or a ResNet with symgrad and with PyTorch, from the same weights and with the same samples, on the GPUs of this
# machine, and compares the losses of all steps, the times of a step, and the memory: see bench/README.md.
#
#   bench/models.sh [--model NAME] [--ranks LIST] [--batch N] [--steps N] [--layers N] [--width N] [--heads N] [--context N]
#                   [--precision NAME] [--modes LIST] [--set key=value]... [--bin FOLDER] [--compare FILE] [--python FILE]
#                   [--raw FOLDER] [--out FILE]
#
# --model     gpt2 (default), resnet50 on images of 224x224, or resnet18 on files of CIFAR-10
# --ranks     numbers of ranks, by default those of 1,2,4 for which there are GPUs
# --batch     samples of a step and rank, by default 32 for gpt2 and 128 for a ResNet
# --steps     of a run, by default 300 for gpt2 and 100 for a ResNet
# --layers, --width, --heads, --context   sizes of gpt2, by default those of 124 million parameters: 12, 768, 12, 1024
# --modes     of torch.compile, in addition to eager torch, by default default; '' means none
# --set       a further setting of examples/gpt2 or examples/resnet
#
# It needs no Go: --bin is a folder with that program, by default bin/dev. --python is a Python with torch, and transformers or
# torchvision, which also makes the weights and the samples (train/gpt2.py, train/resnet.py).
#
# Exit code: that of bench/compare (1 when a criterion does not hold); 2 for an invalid command line or an unsuitable machine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly LIMIT_S=400 # time limit of a run, which a longer run exceeds only if it hangs

model=gpt2
ranks=
batch=
steps=
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

options "model ranks batch steps layers width heads context precision modes set+ bin compare python raw out" "$@"
no_more "${rest[@]}"

case $model in
gpt2) program=gpt2 batch=${batch:-32} steps=${steps:-300} ;;
resnet18 | resnet50) program=resnet batch=${batch:-128} steps=${steps:-100} ;;
*) die "unknown --model $model: want gpt2, resnet18 or resnet50" ;;
esac
bin=${bin:-$root/bin/dev}
compare=${compare:-$root/bin/dev/compare}
[ -x "$compare" ] || die "no program $compare: build ./bench/compare there, or set --compare"
[ -x "$bin/$program" ] || die "no program $bin/$program: build ./examples/$program there, or set --bin"
for number in "$batch" "$steps" "$layers" "$width" "$heads" "$context"; do
	[[ $number =~ ^[1-9][0-9]{0,5}$ ]] || die "invalid number \"$number\": want 1 to 999999"
done
[ "$steps" -ge 60 ] || die "--steps $steps: want at least 60; the first 20 are not timed"
gpus=$(smi name,pci.bus_id)
[ -n "$gpus" ] || die "nvidia-smi shows no GPU"
there=$(wc -l <<<"$gpus")
if [ -z "$ranks" ]; then
	for n in 1 2 4; do [ "$n" -gt "$there" ] || ranks=$ranks${ranks:+,}$n; done
fi
for n in ${ranks//,/ }; do
	[[ $n =~ ^[1-9][0-9]?$ && $n -le $there ]] || die "--ranks $n: want 1 to $there, the number of GPUs"
done
raw=${raw:-$root/.bench/$model/raw}
out=${out:-$root/.bench/$model-$(date +%F).json}
rm -rf "$raw"
mkdir -p "$raw/logs"
raw=$(cd "$raw" && pwd)

limit=$LIMIT_S
own_temp
no_multicast
export PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # else torch's launcher warns that it sets it

readonly WARMUP=$((steps / 10))
most=$(tr , '\n' <<<"$ranks" | sort -n | tail -n 1)

# Each model has: the rate, the flags of its Python program to make what both sides begin with, those to train, and the
# settings of ours.
case $program in
gpt2)
	rate=0.0006 least=0.00006
	make=(--layers "$layers" --width "$width" --heads "$heads" --context "$context" --tokens $((batch * most * steps * context + 1)))
	train=(--weights "$temp/made/initial" --tokens "$temp/made/train.bin")
	own=(--config "$root/configs/gpt2.yaml" --set "model.pretrained=$temp/made/initial" --set "model.context=$context"
		--set "data.path=$temp/made/train.bin" --set data.val_path=)
	;;
resnet)
	rate=0.1 least=0
	make=(--model "$model")
	train=(--model "$model" --made "$temp/made" --decay 0.0001 --momentum 0.9 --smoothing 0.1)
	own=(--config "$root/configs/resnet50-images.yaml" --set "model.name=$model" --set "model.pretrained=$temp/made/initial.safetensors"
		--set "data.path=$temp/made/images" --set data.image_size=0 --set data.augment=false --set data.drop_last=true --set model.label_smoothing=0.1
		--set optim.momentum=0.9 --set optim.weight_decay=0.0001)
	;;
esac
train+=(--steps "$steps" --warmup "$WARMUP" --rate "$rate" --least "$least" --precision "$precision")
own+=(--set data.shuffle=false --set data.accum_steps=1 --set "optim.lr=$rate" --set "optim.schedule.min_lr=$least"
	--set "optim.schedule.warmup_steps=$WARMUP" --set run.epochs=0 --set "run.max_steps=$steps" --set run.eval=false --set run.device=cuda
	--set "run.precision=$precision" --set "log.every=$steps" --set log.losses=true --set log.progress=none --set checkpoint.dir=)

measure_symgrad() { # RANKS
	local name=symgrad.$1
	timed "$name" "$bin/$program" "${own[@]}" --set "data.global_batch=$((batch * $1))" --set "launch.nproc_per_node=$1" \
		--set "run.output_dir=$temp/$name" "${set[@]/#/--set=}" --warmup 20 --json "$raw/$name.times.json" || true
	cp "$temp/$name/summary.json" "$raw/$name.summary.json" || true
}

measure_torch() { # RANKS MODE
	local name=torch${2:+-compile-$2}.$1
	timed "$name" "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" "$here/train/$program.py" "${train[@]}" \
		--batch $((batch * $1)) --mode "$2" --out "$raw/$name.json" || true
}

mkdir "$temp/made"
"$python" "$here/train/$program.py" --make "$temp/made" "${make[@]}" || die "$python cannot make weights and samples of $model"
cat >"$raw/session.json" <<-END
	{
	  "date": $(json "$(date -u +%FT%TZ)"),
	  "model": $(cat "$temp/made/model.json"),
	  "steps": $steps,
	  "host": {
	    "kernel": $(json "$(kernel)"),
	    "driver": $(json "$(smi driver_version | sed -n 1p)"),
	    "gpus": [$(json_list <<<"$gpus")]
	  }
	}
END
for n in ${ranks//,/ }; do
	measure_symgrad "$n"
	measure_torch "$n" ''
	for mode in ${modes//,/ }; do measure_torch "$n" "$mode"; done
done
note "measured in $SECONDS s"
code=0
"$compare" models -o "$out" "$raw" || code=$?
exit "$code"
