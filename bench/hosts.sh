#!/usr/bin/env bash
# Measures allreduces between two hosts, which it makes of this machine, by symgrad, Open MPI and
# MPICH, interleaved, and compares them; and predicts the times of symgrad on two and three hosts
# from the speed of the wire. See bench/README.md. It needs root.
#
#   bench/hosts.sh [--rounds N] [--layouts "2x1 2x2 3x1"] [--engines "LIST"] [--max SIZE] [--factor N] [--budget MS] [--out FILE]
#
# A layout is hosts x ranks of each. A round runs every engine twice, with sizes from 8 B and from
# 16 B; with factor 4 these are all powers of two. Another engine is the first each time. --budget
# is the time in ms that collbench may spend on a row.
#
# Exit code: that of bench/compare (1 when a criterion does not hold); 2 for an invalid command line
# or an unsuitable machine.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rounds=3
layouts="2x1 2x2 3x1"
engines=
max=64M
factor=4
budget=100
out=

options "rounds layouts engines max factor budget out" "$@"
no_more "${rest[@]}"

work=$root/.bench/hosts-cpu
raw=$work/raw
out=$(realpath -m "${out:-$root/.bench/hosts-$(date +%F).json}")
[ "$(id -u)" -eq 0 ] || die "hosts of namespaces need root"
mkdir -p "$work"

# Concurrent runs would disturb each other.
exec 9>"$work/lock"
flock -n 9 || die "another run is measuring in $work: wait until it ends"
rm -rf "$raw"
mkdir "$raw"

for mpi in openmpi mpich; do
	"mpicc.$mpi" -std=gnu11 -O3 -Wall -Wextra "$here/mpi/collbench.c" -o "$work/collbench-$mpi" -lm ||
		die "mpicc.$mpi cannot compile collbench.c: install openmpi-bin, libopenmpi-dev, mpich and libmpich-dev"
done
export CGO_ENABLED=0
(cd "$root" && go build -buildvcs=false -o "$work/" ./cmd/symgrad ./bench/compare &&
	go test -c -o "$work/hosts.test" ./bench/hosts) || die "the programs do not build"

cat >"$raw/session.json" <<END
{
  "date": $(json "$(date -u +%FT%TZ)"),
  "machine": $(machine),
  "versions": {
    "open_mpi": $(json "$(first_of mpirun.openmpi --version)"),
    "mpich": $(json "$(first_of mpichversion)"),
    "ucx": $(json "$(first_of dpkg-query -W -f '${Version}' libucx0)"),
    "go": $(json "$(first_of go version)"),
    "symgrad": $(json "$(revision)")
  }
}
END
cd "$here/hosts"
DIST_REQUIRE=hosts "$work/hosts.test" -test.v -test.timeout 0 -test.run 'TestMeasureHosts' -raw "$raw" -bin "$work" \
	-rounds "$rounds" -layouts "$layouts" -engines "$engines" -max "$max" -factor "$factor" -budget "$budget" >&2 || die "the hosts failed"
"$work/compare" hosts -o "$out" "$raw"
