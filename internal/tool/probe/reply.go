package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/symgrad/symgrad/internal/dl"
)

// Reply answers the question in the arguments of a child process. It loads a library into this
// process, which may change or end it: the caller must only exit afterwards.
//
// Errors: invalid arguments, an answer that cannot be written. A missing or broken library is an
// answer.
func Reply(args []string, out io.Writer) error {
	q, err := parseQuestion(args)
	if err != nil {
		return err
	}
	text, err := json.Marshal(answer(q))
	if err != nil {
		return fmt.Errorf("probe: %s: %w", q.Product, err)
	}
	// One write that starts a new line: the library may have left half a line on the stream.
	if _, err := fmt.Fprintf(out, "\n%s%s\n", mark, text); err != nil {
		return fmt.Errorf("probe: write the answer: %w", err)
	}
	return nil
}

// answer loads the library of a question and asks it.
func answer(q Question) (a Answer) {
	p, ok := productByName(q.Product)
	if !ok {
		return Answer{Path: q.File, Problem: fmt.Sprintf("unknown product %q", q.Product)}
	}
	before := signalHandlers()
	defer func() {
		// Package ucx puts the handlers back.
		if taken := before.changed(signalHandlers()); len(taken) > 0 && p.family != familyUCX {
			a.Notes = append(a.Notes, "replaces the signal handlers of "+strings.Join(taken, ", "))
		}
	}()
	if p.family == familyBLAS {
		return askBLAS(q)
	}
	lib, err := dl.Open(dl.Search{Name: p.Name, Override: q.File, Global: p.global})
	if err != nil {
		return Answer{Path: q.File, Problem: loaderWords(err, q.File)}
	}
	a = Answer{Loaded: true, Path: lib.Path()}
	if err := p.ask(lib, &a); err != nil {
		a.Problem = plainWords(err, lib)
	}
	return a
}

// plainWords returns an error on one line, without the library's name and path, which the report
// prints anyway.
func plainWords(err error, lib *dl.Library) string {
	text := strings.ReplaceAll(err.Error(), "dl: "+lib.String()+": ", "")
	return strings.ReplaceAll(text, "\n", "; ")
}

// loaderWords returns the loader's error, without the path, which the report prints anyway.
func loaderWords(err error, file string) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "at the path that was set: "); ok {
		text = after
	}
	return strings.TrimPrefix(text, file+": ")
}
