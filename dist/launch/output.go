package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

const (
	lineMax    = 64 << 10 // a longer line is broken
	partialMax = 4 << 10  // the most of an unfinished line of rank 0 that can be drawn again
)

// console writes the output of all ranks to two writers, without mixing lines. One lock covers
// both, since they are often one terminal.
type console struct {
	mu       sync.Mutex
	out, err sink
	words    lastWords
	partial  []byte // the unfinished line that rank 0 has drawn on the terminal
}

// sink is one of the writers.
type sink struct {
	w        io.Writer
	terminal bool
	midline  bool            // the last write did not end its line
	err      error           // the first; later writes are dropped
	unread   chan<- struct{} // notified when w is a pipe without a reader; nil if unused
}

func (s *sink) write(p []byte) {
	if s.err != nil || len(p) == 0 {
		return
	}
	_, s.err = s.w.Write(p)
	s.midline = p[len(p)-1] != '\n'
	if errors.Is(s.err, syscall.EPIPE) {
		select {
		case s.unread <- struct{}{}:
		default: // the other sink has sent it
		}
	}
}

// line writes whole lines to s, above rank 0's unfinished line. c.mu is held.
func (c *console) line(s *sink, text []byte) {
	if s.terminal && len(c.partial) > 0 {
		s.write(bytes.Join([][]byte{[]byte("\r\x1b[K"), text, c.partial}, nil))
		s.midline = false // the next line goes above it too
		return
	}
	if s.midline {
		text = append([]byte{'\n'}, text...)
	}
	s.write(text)
}

// draw writes p of rank 0 to the terminal at once. c.mu is held.
func (c *console) draw(s *sink, p []byte) {
	s.write(p)
	s.midline = false // partial records it
	if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
		c.partial, p = c.partial[:0], p[i+1:]
	}
	c.partial = append(c.partial, p...)
	// Text before a carriage return has been overwritten, unless nothing has followed it yet.
	if i := bytes.LastIndexByte(bytes.TrimRight(c.partial, "\r"), '\r'); i >= 0 {
		c.partial = append(c.partial[:0], c.partial[i+1:]...)
	}
	if len(c.partial) > partialMax {
		c.partial = append(c.partial[:0], c.partial[len(c.partial)-partialMax:]...)
	}
}

// printf writes a line of the launcher itself to stderr.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line(&c.err, fmt.Appendf(nil, "symgrad: "+format+"\n", args...))
}

// rankOutput is the part of one rank's output that is kept for the report and the log.
type rankOutput struct {
	number int // of the rank
	tail   tail
	words  []string       // of LastWord
	log    io.WriteCloser // nil without a log
	err    error          // the first of log
}

// stream is stdout or stderr of one rank, an io.Writer for the bytes from the pipe.
type stream struct {
	c      *console
	to     *sink
	rank   *rankOutput
	prefix string // "[2] "; "" passes the bytes on unchanged
	live   bool   // rank 0 draws on a terminal
	line   []byte // the line so far
}

// Write passes on a rank's output. It never fails: a rank must not stop because its output cannot
// be shown.
func (s *stream) Write(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.live {
		s.c.draw(s.to, p)
	}
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			s.extend(p)
			return n, nil
		}
		s.extend(p[:i])
		s.emit()
		p = p[i+1:]
	}
}

// extend adds p to the line, and breaks a line that gets too long. c.mu is held.
func (s *stream) extend(p []byte) {
	for len(s.line)+len(p) > lineMax {
		n := lineMax - len(s.line)
		s.line = append(s.line, p[:n]...)
		s.emit()
		p = p[n:]
	}
	s.line = append(s.line, p...)
}

// emit passes the line on. c.mu is held.
func (s *stream) emit() {
	if word, ok := bytes.CutPrefix(s.line, []byte(lastWordMark)); ok && s.to == &s.c.err {
		s.line = word
		s.lastWord()
		s.line = s.line[:0]
		return
	}
	s.keep()
	switch {
	case s.live:
	case s.prefix == "":
		s.c.line(s.to, append(s.line, '\n'))
	default:
		s.c.line(s.to, []byte(s.prefix+visible(s.line)+"\n"))
	}
	s.line = s.line[:0]
}

// lastWord passes on a line of LastWord, unless another rank has written the same. c.mu is held.
func (s *stream) lastWord() {
	s.log()
	text := visible(s.line)
	s.rank.words = append(s.rank.words, text)
	first, named := s.c.words.add(s.rank.number, text)
	switch {
	case !first:
	case named:
		s.c.line(s.to, []byte(text+"\n"))
	default:
		s.c.line(s.to, []byte(s.prefix+text+"\n"))
	}
}

// keep adds the line to the tail and the log.
func (s *stream) keep() {
	s.rank.tail.add(visible(s.line))
	s.log()
}

// log writes the line to the log, if any.
func (s *stream) log() {
	if s.rank.log != nil && s.rank.err == nil {
		_, s.rank.err = s.rank.log.Write(append(bytes.Clone(s.line), '\n'))
	}
}

// end passes on an unfinished line.
func (s *stream) end() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.live && len(s.c.partial) > 0 {
		s.to.write([]byte{'\n'})
		s.c.partial = nil
	}
	switch {
	case len(s.line) == 0:
	case s.prefix == "" && !s.live:
		// Unchanged: output of a single rank is passed on byte for byte. The next line, if any,
		// ends it.
		s.keep()
		s.c.line(s.to, s.line)
	default:
		s.emit()
	}
	s.line = nil
}

// visible returns the part of a line that a terminal shows: the text after its last carriage
// return.
func visible(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	return string(line[bytes.LastIndexByte(line, '\r')+1:])
}
