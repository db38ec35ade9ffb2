package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"syscall"
)

// killsVar is the number of generations of a job in which a killer ends a rank.
const killsVar = "SYMGRAD_TEST_KILLS"

// killer passes on what rank 0 writes. With the line of its eighth step it kills one
// of the two ranks: rank 0 in even generations, rank 1 in odd ones. Rank 1 is there, since rank 0
// does not go on before Write returns.
type killer struct {
	w     io.Writer
	steps int
	rank  int
}

// newKiller reads the number of kills and the generation from the environment.
//
// Returns: w itself if no rank is to be killed.
func newKiller(w io.Writer) (io.Writer, error) {
	s := os.Getenv(killsVar)
	if s == "" {
		return w, nil
	}
	kills, err := strconv.Atoi(s)
	generation := 0
	if s := os.Getenv("SYMGRAD_RESTARTS"); err == nil && s != "" {
		generation, err = strconv.Atoi(s)
	}
	if err != nil || generation >= kills {
		return w, err
	}
	return &killer{w: w, rank: generation % 2}, nil
}

func (k *killer) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	if err != nil || !bytes.HasPrefix(p, []byte("step ")) {
		return n, err
	}
	if k.steps++; k.steps == 8 {
		pids, err := findRanks(os.Getppid(), 2)
		if err != nil {
			return n, err
		}
		return n, syscall.Kill(pids[k.rank], syscall.SIGKILL)
	}
	return n, nil
}
