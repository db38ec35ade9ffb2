#!/bin/sh
# Runs the long tests: scripts/long.sh [GO]. They are the tests of which `make test` takes few cases, with all their cases:
# worlds, training steps, litmus rounds, kills (see package internal/long), and the draws of property tests.
set -eu
go=${1:-go}
export CGO_ENABLED=0

tests() { # NAMES OPTION...: runs the tests whose names match, in the packages and with the options given
	names=$1
	shift
	"$go" test -vet=off -count=1 -shuffle=on -timeout=10m -run="$names" "$@"
}

# The property tests are those that call rapid.Check.
properties=$(grep -r --include='*_test.go' -e '^func Test' -e 'rapid\.Check' . | awk '
	/:func Test/ { split($2, part, "("); name = part[1] }
	/rapid\.Check/ && name { print name; name = "" }' | sort -u | paste -sd '|' -)
folders=$(grep -rl --include='*_test.go' 'rapid\.Check' . | xargs -n1 dirname | sort -u)

failed=0
SYMGRAD_TEST_LONG=1 tests 'ConformanceOf(Many|Processes)|ConformanceOnCallers|Litmus|Quiet' ./internal/shm ./internal/sim || failed=1
SYMGRAD_TEST_LONG=1 tests 'GiveTheBits|GivesTheBits|HasTheBits|ManyRanks|ForEveryModel|SameForEveryStage|BySteps|Converges' \
	./dist/ddp ./machine || failed=1
SYMGRAD_TEST_LONG=1 tests 'Killed|Stops|LeakNothing|LeavesNothing|CanBeRepeated|Curves|LearnsMNIST' \
	./checkpoint ./dist/ddp ./dist/launch ./examples/ddp || failed=1
# shellcheck disable=SC2086 # folders are words
tests "^($properties)\$" $folders -rapid.checks=1000 || failed=1
exit $failed
