#!/bin/sh
# Runs the long tests: scripts/long.sh [GO]. `make test` runs only few cases of these tests; this
# runs all: worlds, training steps, litmus rounds and kills (see package internal/long), and the
# draws of property tests.
set -eu
go=${1:-go}
export CGO_ENABLED=0
failed=0

# tests NAMES OPTION... runs the tests with matching names, with the given packages and options.
tests() {
	names=$1
	shift
	"$go" test -vet=off -count=1 -shuffle=on -timeout=10m -run="$names" "$@" || failed=1
}

# The property tests are those that call rapid.Check.
properties=$(grep -r --include='*_test.go' -e '^func Test' -e 'rapid\.Check' . | awk '
	/:func Test/ { split($2, part, "("); name = part[1] }
	/rapid\.Check/ && name { print name; name = "" }' | sort -u | paste -sd '|' -)
folders=$(grep -rl --include='*_test.go' 'rapid\.Check' . | xargs -n1 dirname | sort -u)

export SYMGRAD_TEST_LONG=1
tests 'Conformance(OfMany|OfProcesses|OnCallers)|Litmus|Quiet' ./internal/host/shm ./internal/sim
tests '(Give|Gives|Has)TheBits|ManyRanks|ForEveryModel|SameForEveryStage|BySteps|Converges' \
	./dist/ddp ./machine
tests 'Killed|Stops|LeakNothing|LeavesNothing|CanBeRepeated|Curves|LearnsMNIST' \
	./checkpoint ./dist/ddp ./dist/launch ./examples/ddp
tests 'HostFaults' ./internal/net/faults
for wire in ucx openmpi mpich; do
	tests "SuitesOverHosts/$wire" ./dist/backend
done
unset SYMGRAD_TEST_LONG
# shellcheck disable=SC2086 # folders are words
tests "^($properties)\$" $folders -rapid.checks=1000
exit $failed
