package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/foreign"
)

// textEncoder appends texts to files of tokens.
type textEncoder struct {
	ctx    context.Context // ends at a signal
	tokens *data.TokenWriter
	enc    *bpe.Encoding
	shown  *progressLine
}

// encode appends a text, with <|endoftext|> before it.
//
// Returns: the tokens written, and the bytes of the text. Errors: name the text; a stoppedBySignal
// as the cause after a signal.
func (e *textEncoder) encode(cmd *cobra.Command, path string) (n int, size int64, err error) {
	in, total, err := openText(cmd, path)
	if err == nil {
		defer func() { err = errors.Join(err, in.Close()) }()
		err = e.tokens.Write([]int{e.enc.EndOfText()})
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	r := &interruptible{ctx: e.ctx, in: in, got: make(chan result, 1), block: make([]byte, 1<<16)}
	n = 1
	began := time.Now()
	err = e.enc.EncodeAll(r, func(tokens []int) error {
		n += len(tokens)
		e.shown.draw(began, path, r.read, total, n)
		return e.tokens.Write(tokens)
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return n, r.read, err
}

// openText opens a text, or standard input.
//
// Returns: also the length, 0 if it is unknown. Errors: those of the file system, without the path.
func openText(cmd *cobra.Command, path string) (in io.ReadCloser, size int64, err error) {
	if path == stdin {
		return io.NopCloser(cmd.InOrStdin()), 0, nil
	}
	f, err := foreign.Open(path)
	if err != nil {
		var of *os.PathError
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// interruptible is a reader that a context ends, also while a read waits for input. The goroutine
// of such a read ends with the process.
type interruptible struct {
	ctx   context.Context
	in    io.Reader
	block []byte
	got   chan result
	read  int64
}

// result is the result of a read.
type result struct {
	n   int
	err error
}

// Read reads a part of the text.
//
// Errors: those of the reader; the cause of the context.
func (r *interruptible) Read(p []byte) (int, error) {
	if cause := context.Cause(r.ctx); cause != nil {
		return 0, cause
	}
	block := r.block[:min(len(p), len(r.block))]
	go func() {
		n, err := r.in.Read(block)
		r.got <- result{n, err}
	}()
	select {
	case got := <-r.got:
		r.read += int64(got.n)
		return copy(p, block[:got.n]), got.err
	case <-r.ctx.Done():
		return 0, context.Cause(r.ctx)
	}
}

// stoppedBySignal is the end of a command by a signal.
type stoppedBySignal struct{ sig syscall.Signal }

// Error returns "stopped by signal: interrupt".
func (s *stoppedBySignal) Error() string { return fmt.Sprintf("stopped by signal: %v", s.sig) }

// untilSignal returns a context that SIGINT or SIGTERM ends, with a stoppedBySignal as its cause. A
// second signal ends the program at once, as usual.
//
// Owns: the caller calls release.
func untilSignal(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer signal.Stop(signals)
		select {
		case sig := <-signals:
			cancel(&stoppedBySignal{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// redraw is the shortest time between two drawings of a progress line.
const redraw = 100 * time.Millisecond

// progressLine is a line on a terminal that is drawn again and again.
type progressLine struct {
	out     io.Writer
	columns int // 0 without a terminal: nothing is drawn
	drawn   time.Time
	width   int // of the text on the line
}

func newProgressLine(out io.Writer) *progressLine {
	return &progressLine{out: out, columns: launch.Columns(out)}
}

// draw shows the progress on a text, of total bytes or of an unknown number.
func (p *progressLine) draw(began time.Time, path string, read, total int64, tokens int) {
	now := time.Now()
	if p.columns == 0 || now.Sub(p.drawn) < redraw {
		return
	}
	p.drawn = now
	const mega = 1e6
	text := fmt.Sprintf("%s: %.1f MB", path, float64(read)/mega)
	if total > 0 {
		text = fmt.Sprintf("%s: %.0f %% of %.1f MB", path, 100*float64(read)/float64(total), float64(total)/mega)
	}
	text += fmt.Sprintf(", %.1f M tokens, %.1f MB/s", float64(tokens)/mega, float64(read)/mega/max(now.Sub(began).Seconds(), 1e-3))
	line := []rune(text)
	line = line[:min(len(line), p.columns-1)]
	p.clear()
	fmt.Fprint(p.out, string(line))
	p.width = len(line)
}

// clear removes the line.
func (p *progressLine) clear() {
	if p.width > 0 {
		fmt.Fprint(p.out, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}
