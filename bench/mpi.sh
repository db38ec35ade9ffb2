#!/usr/bin/env bash
# Measures the collectives of `symgrad bench`, of Open MPI and of MPICH on this machine,
# interleaved, and compares them: see bench/README.md.
#
#   bench/mpi.sh [--rounds N] [--ranks "2 4"] [--engines "LIST"] [--ops LIST] [--max SIZE] [--factor N] [--budget MS]
#                [--near LOW,HIGH] [--patience SECONDS] [--tries N] [--out FILE]
#
# A round is one batch of each unit. A unit is a number of ranks, a style (osu or fresh) and a place
# (out of place, or in place: allreduce and broadcast). A batch runs every engine once, with a probe
# before and after each run; the first engine changes from batch to batch. With factor 4 the sizes
# of odd rounds start at 8 B and those of even rounds at 16 B, so two rounds have every power of
# two.
#
# Before each run, the script waits until the probe finds the cores near, for at most --patience
# seconds. If the probe after the run does not find them near, the run is repeated, --tries times in
# all; then the batch is discarded. --budget is the time in ms that collbench may spend on a row.
#
# Exit code: that of bench/compare (1 when a criterion does not hold); 2 for an invalid command line
# or an unsuitable machine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Two cores are near when a cache line makes the round trip in this many nanoseconds. Cores with a
# common last-level cache take 100 to 130, SMT siblings 30 to 50, cores of different caches or
# packages 300 and more, and cores in use by other programs any time. Virtual machines move between
# these states.
near=60,200

# Time limit of an engine: a longer run hangs.
readonly LIMIT_S=180

readonly ALL_ENGINES="symgrad openmpi openmpi-ucx openmpi-malloc openmpi-sm mpich bare"
readonly ALL_OPS=allreduce,reducescatter,allgather,broadcast,alltoall,barrier

rounds=2
ranks="2 4"
engines=$ALL_ENGINES
ops=$ALL_OPS
max=64M
factor=4
budget=30
patience=120
tries=5
out=

options "rounds ranks engines ops max factor budget near patience tries out" "$@"
no_more "${rest[@]}"
for number in "$rounds" "$factor" "$budget" "$patience" "$tries" $ranks; do
	[[ $number =~ ^[1-9][0-9]{0,5}$ ]] || die "invalid number \"$number\": want 1 to 999999"
done
[[ $near =~ ^[0-9]+,[0-9]+$ ]] || die "invalid range of nanoseconds \"$near\": want for example 60,200"
[[ $max =~ ^[1-9][0-9]*[KMG]?$ ]] || die "invalid size \"$max\": want for example 64M"
for op in ${ops//,/ }; do
	[[ ",$ALL_OPS," == *",$op,"* ]] || die "unknown operation \"$op\": use some of $ALL_OPS"
done
for engine in $engines; do
	[[ " $ALL_ENGINES " == *" $engine "* ]] || die "unknown engine \"$engine\": use some of $ALL_ENGINES"
done

work=$root/.bench/mpi
raw=$work/raw
cores=$(nproc)
out=${out:-$root/.bench/mpi-$(date +%F).json}
[ "$cores" -ge 2 ] || die "one core only: nothing to compare"
mkdir -p "$work"

# Concurrent runs would disturb each other.
exec 9>"$work/lock"
flock -n 9 || die "another run is measuring in $work: wait until it ends"
rm -rf "$raw"
mkdir "$raw"

own_temp

without() { # ENGINE-PATTERN: removes engines from the list
	local kept=() engine
	for engine in $engines; do
		# shellcheck disable=SC2053 # the right side is a pattern
		[[ $engine == $1 ]] || kept+=("$engine")
	done
	engines="${kept[*]-}"
}

build_mpi() { # NAME PATTERN PACKAGES: compiles collbench with an MPI's compiler, or removes that engine
	[[ " $engines " == *" $1"* ]] || return 0
	if ! command -v "mpicc.$1" >/dev/null || ! command -v "mpirun.$1" >/dev/null; then
		note "no mpicc.$1 or mpirun.$1: measuring without it; install $3 to have it"
		without "$2"
	elif ! "mpicc.$1" -std=gnu11 -O3 -Wall -Wextra "$here/mpi/collbench.c" -o "$work/collbench-$1" -lm 2>"$work/build-$1.log"; then
		note "mpicc.$1 cannot compile collbench.c: measuring without it; install $3 to have it ($work/build-$1.log)"
		without "$2"
	fi
}

build() {
	"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -pthread "$here/mpi/pingpong.c" -o "$work/pingpong" -lm ||
		die "pingpong.c does not compile"
	build_mpi openmpi 'openmpi*' "openmpi-bin and libopenmpi-dev"
	build_mpi mpich 'mpich*' "mpich and libmpich-dev"
	if [[ " $engines " == *" bare "* ]]; then
		"${CC:-cc}" -std=gnu11 -O3 -march=native -Wall -Wextra -I "$here/mpi/bare" "$here/mpi/collbench.c" -o "$work/collbench-bare" -lm ||
			die "collbench.c does not compile with bare/mpi.h"
	fi
	if [[ " $engines " == *" symgrad "* ]]; then
		(cd "$root" && CGO_ENABLED=0 go build -buildvcs=false -o "$work/symgrad" ./cmd/symgrad) || die "symgrad does not build"
		"$work/symgrad" bench --help >/dev/null || die "this symgrad has no bench command: remove it from --engines"
	fi
	(cd "$root" && CGO_ENABLED=0 go build -buildvcs=false -o "$work/compare" ./bench/compare) || die "compare does not build"
	[ -n "$engines" ] || die "no engine remains"
}

describe() { # writes session.json
	cat >"$raw/session.json" <<-END
		{
		  "date": $(json "$(date -u +%FT%TZ)"),
		  "near_ns": [${near/,/, }],
		  "machine": $(machine),
		  "versions": {
		    "open_mpi": $(json "$(first_of mpirun.openmpi --version)"),
		    "mpich": $(json "$(first_of mpichversion)"),
		    "go": $(json "$(first_of go version)"),
		    "symgrad": $(json "$(revision)")
		  },
		  "engines": [$(for e in $engines; do echo "$e"; done | json_list)]
		}
	END
}

# Sets command to the launcher of an engine with n ranks, one per core if there are enough.
launcher() { # ENGINE RANKS
	case $1 in
	openmpi*)
		command=(mpirun.openmpi -n "$2")
		[ "$(id -u)" -ne 0 ] || command+=(--allow-run-as-root)
		if [ "$2" -le "$cores" ]; then
			command+=(--bind-to core --map-by core)
		else
			command+=(--oversubscribe --mca mpi_yield_when_idle 1)
		fi
		;;
	mpich)
		command=(mpirun.mpich -n "$2")
		[ "$2" -gt "$cores" ] || command+=(-bind-to core)
		;;
	bare) command=(env BARE_RANKS="$2") ;; # starts the other ranks itself
	esac
	case $1 in
	# Debian disables UCX in openmpi-mca-params.conf, except for InfiniBand: these enable it for shared memory.
	openmpi-ucx) command+=(--mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any) ;;
	# Large messages need scratch memory; by default malloc returns it after every call, which causes page faults.
	openmpi-malloc) command+=(-x MALLOC_MMAP_THRESHOLD_=1073741824 -x MALLOC_TRIM_THRESHOLD_=2147483647) ;;
	# Run collectives directly in shared memory instead of with messages; off by default.
	openmpi-sm) command+=(--mca coll_sm_priority 100) ;;
	esac
}

# Runs one engine of a batch. compare judges the results of a failed run: rows with wrong results,
# or rows without an end.
measure() { # BATCH-FOLDER ENGINE RANKS STYLE PLACE OPS FIRST-SIZE
	local folder=$1 engine=$2 result=$1/$2.json command=() flags=()
	if [ "$engine" = symgrad ]; then
		flags=(--json "$result")
		[ "$4" = osu ] || flags+=(--fresh)
		[ "$5" = out ] || flags+=(--in-place)
		command=("$work/symgrad" bench --op "$6" --backend shm -n "$3" -b "$7" -e "$max" -f "$factor" -d f32 "${flags[@]}")
	else
		launcher "$engine" "$3"
		flags=(-l "$engine" -o "$6" -b "$7" -e "$max" -f "$factor" -t "$budget")
		[ "$4" = osu ] || flags+=(-r)
		[ "$5" = out ] || flags+=(-i)
		command+=("$work/collbench-${engine%%-*}" "${flags[@]}")
		result+=l
	fi
	local to=$folder/$engine.log
	[ "$engine" = symgrad ] || to=$result
	if timeout --foreground -k 5 "$LIMIT_S" "${command[@]}" >"$to" 2>"$folder/$engine.err" </dev/null; then
		return
	fi
	note "$engine failed: $(sed -n '/[a-z]/{p;q;}' "$folder/$engine.err") ($folder/$engine.err)"
}

probe() { # FILE: whether the cores are near; writes the answer to the file
	local code=0
	"$work/pingpong" -r "$near" >"$1" || code=$?
	[ "$code" -eq 0 ] || [ "$code" -eq 3 ] || die "the probe failed"
	return "$code"
}

probe_until_near() { # FILE: fails after $patience seconds
	local begun=$SECONDS
	until probe "$1"; do
		[ $((SECONDS - begun)) -lt "$patience" ] || return 1
		sleep 1
	done
}

rotated() { # N: the engines, rotated by N
	local list=() shift_by
	read -ra list <<<"$engines"
	shift_by=$(($1 % ${#list[@]}))
	echo "${list[@]:shift_by}" "${list[@]:0:shift_by}"
}

batches=0 # all that were started

# Runs one batch; fails when its cores were not always near.
batch() { # RANKS STYLE PLACE OPS FIRST-SIZE
	local folder engine
	folder=$(printf '%s/batch-%04d' "$raw" "$batches")
	mkdir "$folder"
	batches=$((batches + 1))
	printf '{"ranks": %d, "fresh": %s, "in_place": %s}\n' "$1" \
		"$([ "$2" = fresh ] && echo true || echo false)" "$([ "$3" = in ] && echo true || echo false)" >"$folder/unit.json"
	probe_until_near "$folder/before.json" || return 1
	for engine in $(rotated "$batches"); do
		near_run "$folder" "$engine" "$@" || return 1
	done
}

# Runs one engine, again while the cores are not near at its end; fails after all tries.
near_run() { # BATCH-FOLDER ENGINE RANKS STYLE PLACE OPS FIRST-SIZE
	local try
	for ((try = 1; try <= tries; try++)); do
		measure "$@"
		! probe "$1/after.json" || return 0
		probe_until_near "$1/between.json" || return 1
	done
	return 1
}

unit() { # RANKS STYLE PLACE OPS FIRST-SIZE: runs a batch, again if it was discarded
	local try begun=$SECONDS what="$1 ranks, $2, in place"
	[ "$3" = in ] || what="$1 ranks, $2, out of place"
	for ((try = 1; try <= tries; try++)); do
		if batch "$@"; then
			note "$what: $((SECONDS - begun)) s"
			return
		fi
		note "$what: thrown away, the cores were not near"
	done
	note "$what: given up after $tries tries"
}

ops_in_place=
for op in allreduce broadcast; do
	[[ ",$ops," != *,$op,* ]] || ops_in_place+=${ops_in_place:+,}$op
done
build
describe
for ((round = 0; round < rounds; round++)); do
	first=8
	[ "$factor" -ne 4 ] || [ $((round % 2)) -eq 0 ] || first=16
	for n in $ranks; do
		for style in osu fresh; do
			unit "$n" "$style" out "$ops" "$first"
			[ -z "$ops_in_place" ] || unit "$n" "$style" in "$ops_in_place" "$first"
		done
	done
done
"$work/compare" -o "$out" "$raw"
