#!/usr/bin/env bash
# Runs the tests that need GPUs on a machine that has GPUs but no Go. It also kills ranks during collectives and measures
# how soon the others notice. It records the results, the machine and the libraries: see bench/README.md.
#
#   bench/tests.sh [--ranks N] [--tests FOLDER] [--symgrad FILE] [--backends LIST] [--kills N] [--size SIZE] [--limit SECONDS]
#                  [--logs FOLDER] [--out FILE] [PACKAGE[:PATTERN]]...
#
# PACKAGE is a folder of this tree, such as internal/gpu/direct, in which its test program runs, with PATTERN for -test.run.
# --tests is the folder of these programs, --symgrad is cmd/symgrad; the default is bin/dev, where make gpu-tests builds them.
# --limit is the time for each program (1200 s).
#
# The last of N ranks (default: the number of GPUs) is killed --kills times (3) for each of --backends (cuda,nccl,nvshmem;
# shm needs no GPU), during reductions of SIZE (1M). The others must name it and exit with 75 within 5 s.
#
# JSON lines are added to --out (.bench/tests-DATE.jsonl): the machine, then one line per program and per kill.
#
# Exit code: 1 when a test failed, or a pattern matches no test; 2 for an invalid command line.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly WITHIN_MS=5000 # time for the other ranks to end after one was killed
readonly START_S=120    # limit for the start of ranks, which loads libraries and compiles kernels

ranks=
tests=
symgrad=
backends=cuda,nccl,nvshmem
kills=3
size=1M
limit=1200
logs=
out=

options "ranks tests symgrad backends kills size limit logs out" "$@"

tests=$(realpath -m "${tests:-$root/bin/dev}")
symgrad=$(realpath -m "${symgrad:-$root/bin/dev/symgrad}")
[ -x "$symgrad" ] || die "no program $symgrad: build ./cmd/symgrad there, or set --symgrad"
gpus=$(smi name)
ranks=${ranks:-$(grep -c . <<<"$gpus" || true)}
[[ $ranks =~ ^([2-9]|[1-9][0-9])$ ]] || die "--ranks $ranks: want 2 to 99, on as many GPUs"
[[ $kills =~ ^[0-9]{1,3}$ && $limit =~ ^[1-9][0-9]{0,4}$ ]] || die "--kills and --limit must be numbers"
for t in "${rest[@]}"; do
	program=$tests/$(basename "${t%%:*}").test
	[ -d "$root/${t%%:*}" ] || die "no package ${t%%:*}"
	[ -x "$program" ] || die "no program $program: build it with make gpu-tests, or set --tests"
done
logs=${logs:-$root/.bench/tests}
mkdir -p "$logs"
logs=$(realpath "$logs")
out=${out:-$root/.bench/tests-$(date +%F).jsonl}
mkdir -p "$(dirname "$out")"

no_multicast

failed=0

record() { # TEXT: adds a line to the result and prints it
	echo "$1" | tee -a "$out"
}

since() { # MICROSECONDS: milliseconds since that time
	echo $((($(now) - $1) / 1000))
}

now() { echo "${EPOCHREALTIME/[.,]/}"; }

describe() { # records the libraries of a job of the first backend
	local file=$logs/session.json libraries=
	timeout --foreground -k 5 "$START_S" "$symgrad" bench --backend "${backends%%,*}" -n "$ranks" -b 4 -e 4 --iters 20 --json "$file" >"$logs/session.log" 2>&1 ||
		die "symgrad bench failed: see $logs/session.log"
	libraries=$(tr -d '\n' <"$file" | sed -n 's/.*"libraries": \({[^}]*}\).*/\1/p' | tr -s ' ')
	record "{\"date\":\"$(date -u +%FT%TZ)\",\"kernel\":\"$(kernel)\",\"gpus\":[$(json_list <<<"$gpus")],\"libraries\":${libraries:-{\}}}"
}

run_tests() { # PACKAGE[:PATTERN]
	local package=${1%%:*} pattern=. begun=$SECONDS code=0 name log
	[ "$package" = "$1" ] || pattern=${1#*:}
	name=$(basename "$package")
	log=$logs/$name-$((++programs)).log
	(cd "$root/$package" && exec timeout --foreground -k 5 "$limit" "$tests/$name.test" -test.v -test.timeout "${limit}s" -test.run "$pattern") \
		>"$log" 2>&1 || code=$?
	if [ "$code" -ne 0 ] || grep -q '^testing: warning: no tests to run' "$log"; then failed=1; fi
	count() { grep -c "^ *--- $1:" "$log" || true; }
	record "{\"package\":\"$package\",\"run\":$(json "$pattern"),\"visible\":$(json "${CUDA_VISIBLE_DEVICES:-all}"),\"code\":$code,\"pass\":$(count PASS),\"skip\":$(count SKIP),\"fail\":[$(
		sed -n 's/^ *--- FAIL: \([^ ]*\).*/\1/p; s/^testing: warning: //p' "$log" | json_list
	)],\"seconds\":$((SECONDS - begun))}"
}

alive() { # FROM TO: whether one of these ranks is alive
	local r
	for ((r = $1; r <= $2; r++)); do
		! kill -0 "${pids[r]}" 2>/dev/null || return 0
	done
	return 1
}

kill_one() { # BACKEND N: in the Nth job
	local backend=$1 last=$((ranks - 1)) job=tests-$$-$1-$2 r begun code ms codes=() all=yes
	pids=()
	for ((r = 0; r < ranks; r++)); do
		SYMGRAD_RANK=$r SYMGRAD_WORLD_SIZE=$ranks SYMGRAD_LOCAL_RANK=$r SYMGRAD_LOCAL_WORLD_SIZE=$ranks SYMGRAD_JOB=$job \
			"$symgrad" bench --backend "$backend" -b "$size" -e "$size" --in-place --iters 2000 --rounds 1000 -w 0 -c 0 \
			>"$logs/$job-$r.out" 2>"$logs/$job-$r.err" </dev/null &
		pids+=($!)
	done
	begun=$SECONDS
	until grep -qs algbw "$logs/$job-0.out" || [ $((SECONDS - begun)) -gt "$START_S" ] || ! alive 0 0; do
		sleep 0.1
	done
	grep -qs algbw "$logs/$job-0.out" || all=no # no collective has started
	sleep "1.$((RANDOM % 10))"
	begun=$(now)
	kill -KILL "${pids[last]}" 2>/dev/null || all=no
	while alive 0 $((last - 1)) && [ "$(since "$begun")" -lt $((2 * WITHIN_MS)) ]; do
		sleep 0.01
	done 2>/dev/null # without bash's message about the killed job
	ms=$(since "$begun")
	if alive 0 $((last - 1)); then
		kill -QUIT "${pids[@]}" 2>/dev/null || true # prints their goroutines
		sleep 2
		kill -KILL "${pids[@]}" 2>/dev/null || true
	fi
	for ((r = 0; r < last; r++)); do
		code=0
		wait "${pids[r]}" 2>/dev/null || code=$?
		codes+=("$code")
		[ "$code" -eq 75 ] && grep -q "rank $last died" "$logs/$job-$r.err" || all=no
	done
	wait "${pids[last]}" 2>/dev/null || true
	pids=() # other processes may have these numbers now
	[ "$ms" -le "$WITHIN_MS" ] || all=no
	[ "$all" = yes ] || failed=1
	record "{\"kill\":$last,\"backend\":\"$backend\",\"ranks\":$ranks,\"holds\":$([ "$all" = yes ] && echo true || echo false),\"codes\":[$(
		IFS=,
		echo "${codes[*]}"
	)],\"ms\":$ms,\"rank 0\":$(json "$(grep -m 1 "rank $last died" "$logs/$job-0.err" || true)")}"
}

pids=()
trap '[ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || true' EXIT
programs=0
describe
for t in "${rest[@]}"; do run_tests "$t"; done
for ((k = 1; k <= kills; k++)); do
	for backend in ${backends//,/ }; do kill_one "$backend" "$k"; done
done
exit $failed
