package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/tool/plan"
)

// probeLink measures allreduces of some sizes between ranks on this host, with symgrad bench.
func probeLink(ctx context.Context, ranks int) (_ *plan.Link, err error) {
	if ranks == 1 {
		return plan.Probed("one rank", 1, []plan.Point{{Seconds: 1e-9}}) // nothing is sent
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("plan --probe: this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "symgrad-plan-*")
	if err != nil {
		return nil, fmt.Errorf("plan --probe: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "probe.json")
	var said bytes.Buffer
	res, err := launch.Spawn(ctx, launch.SpawnConfig{
		Program: program, Args: probeArgs(ranks, file), N: ranks, Stdout: io.Discard, Stderr: &said,
	})
	if err != nil || res.Code != 0 {
		return nil, probeFailed(ranks, res.Code, err, said.String())
	}
	measured, err := readResult(file)
	if err != nil {
		return nil, fmt.Errorf("plan --probe: %w", err)
	}
	var points []plan.Point
	for _, row := range measured.Rows {
		points = append(points, plan.Point{Bytes: row.Bytes, Seconds: row.TimeUS / 1e6})
	}
	return plan.Probed(fmt.Sprintf("a probe of %s with %d ranks on this host", measured.Settings.Backend, ranks), ranks, points)
}

// probeArgs returns the arguments of symgrad bench. Like reductions of buckets, the operations run
// in place and on the stream.
func probeArgs(ranks int, file string) []string {
	return []string{
		"bench", "--op", "allreduce", "--backend", "shm", "--ranks", strconv.Itoa(ranks), "--minbytes", "1K", "--maxbytes", "16M",
		"--stepfactor", "16", "--in-place", "--queued", "--iters", "20", "--check", "0", "--json", file,
	}
}

// probeFailed returns the error of a failed measurement. err is that of starting the ranks, and nil
// if only the ranks failed.
func probeFailed(ranks, code int, err error, said string) error {
	if err != nil {
		return fmt.Errorf("plan --probe: %d ranks on this host ended with code %d: %w%s", ranks, code, err, tail(said))
	}
	return fmt.Errorf("plan --probe: %d ranks on this host ended with code %d%s", ranks, code, tail(said))
}

// tail returns said after a colon, or "" if said is empty.
func tail(said string) string {
	if said == "" {
		return ""
	}
	return ": " + said
}
