package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/symgrad/symgrad/internal/host/blas"
)

// Question is a question to a library.
type Question struct {
	Product string // the name of a product: "nccl"
	File    string // a path, or a bare soname for the loader; "" for product "blas" means its own search
}

// args returns q as arguments of a command; parseQuestion is its inverse.
func (q Question) args() []string { return []string{q.Product, q.File} }

func parseQuestion(args []string) (Question, error) {
	if len(args) != 2 {
		return Question{}, fmt.Errorf("probe: %d arguments, want a product and a file", len(args))
	}
	return Question{Product: args[0], File: args[1]}, nil
}

// Answer is the answer of a library.
type Answer struct {
	Loaded  bool     // whether the loader found and loaded it
	Path    string   // of the file, links resolved
	Version string   // as reported by the library
	Problem string   // why it cannot be used; "" if it can
	Notes   []string // further facts for the user

	BLAS   blas.Info // of BLAS products
	Driver *Driver   // of the CUDA driver
}

// mark starts the line with the answer in the output of a child, in which libraries may print as
// well.
const mark = "symgrad-answer: "

// askLimit is the time limit of an answer. A driver wakes up each GPU, which can take seconds
// without a daemon that keeps them awake.
const askLimit = 60 * time.Second

// Child returns a function for Roots.Ask that answers each question in a separate process: it runs
// command with product and file as arguments, which should call Reply.
//
// Returns: if the process dies, hangs or prints no answer, the Answer has a Problem that says so.
// The process and the readers of its output have ended when the function returns.
func Child(command ...string) func(ctx context.Context, q Question) Answer {
	return func(ctx context.Context, q Question) Answer { return askWithin(ctx, askLimit, command, q) }
}

func askWithin(ctx context.Context, limit time.Duration, command []string, q Question) Answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	argv := append(slices.Clone(command), q.args()...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr window
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // for processes that a library started and that still hold the pipes
	err := cmd.Run()
	if a, ok := readAnswer(stdout.text); ok {
		return a
	}
	return Answer{Loaded: true, Path: q.File, Problem: obituary(ctx, limit, err, string(stderr.text))}
}

// windowBytes is the limit of a child's output that is kept: an answer, and later output of the
// library.
const windowBytes = 1 << 20

// window keeps the end of the written text, at least the last windowBytes.
type window struct{ text []byte }

// Write implements io.Writer and never fails.
func (w *window) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	if over := len(w.text) - windowBytes; over > windowBytes { // not at every write, which would copy each time
		w.text = append(w.text[:0], w.text[over:]...)
	}
	return len(p), nil
}

// readAnswer finds the answer in the output of a child.
func readAnswer(output []byte) (a Answer, ok bool) {
	for line := range bytes.Lines(output) {
		text, marked := bytes.CutPrefix(line, []byte(mark))
		if marked && json.Unmarshal(text, &a) == nil {
			return a, true
		}
	}
	return Answer{}, false
}

// obituary returns why a child gave no answer.
func obituary(ctx context.Context, limit time.Duration, err error, stderr string) string {
	text := "the process that loaded it "
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		text += fmt.Sprintf("did not answer within %v", limit)
	case ctx.Err() != nil:
		return "the question was interrupted: " + ctx.Err().Error()
	case errors.As(err, &exit):
		text += "died: " + exit.ProcessState.String()
	case err != nil:
		return "could not be asked: " + err.Error()
	default:
		text += "ended without an answer"
	}
	if first := firstLine(stderr); first != "" {
		text += ": " + first
	}
	return text
}

// firstLine returns the first non-empty line of a text, shortened.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			if len(line) > 200 {
				line = strings.ToValidUTF8(line[:200], "") + "..."
			}
			return line
		}
	}
	return ""
}
