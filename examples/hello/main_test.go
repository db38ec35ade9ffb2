package main

import (
	"testing"

	"github.com/symgrad/symgrad/examples/internal/ranktest"
)

func TestMain(m *testing.M) { ranktest.Main(m, main) }

func TestOneRankLearns(t *testing.T) {
	ranktest.Process(t).Want(t, 0, "rank 0 of 1: w = [3.000]\n")
}

func TestRanksLearnTheSame(t *testing.T) {
	ranks := ranktest.Launched(t, nil, nil)
	ranks[0].Want(t, 0, "rank 0 of 2: w = [3.000]\n")
	ranks[1].Want(t, 0, "rank 1 of 2: w = [3.000]\n")
}
