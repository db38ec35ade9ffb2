package launch

import "strings"

const (
	tailLines  = 20 // lines kept from the end
	crashLines = 10 // lines kept from the start of a crash
)

// tail is the last lines of a rank, and the first of its crash: the goroutine dump of a Go panic
// would otherwise push out the line with the reason.
type tail struct {
	lines []string // a ring once it is full
	next  int      // number of lines added
	crash []string
	first int // number of the crash's first line
}

// crashPrefixes begin the first line of a crash of the Go runtime.
var crashPrefixes = [...]string{"panic: ", "fatal error: ", "runtime: ", "SIGSEGV: ", "SIGABRT: ", "SIGQUIT: "}

func (t *tail) add(line string) {
	if len(t.lines) < tailLines {
		t.lines = append(t.lines, line)
	} else {
		t.lines[t.next%tailLines] = line
	}
	switch {
	case len(t.crash) == 0 && startsCrash(line):
		t.first = t.next
		t.crash = append(t.crash, line)
	case len(t.crash) > 0 && len(t.crash) < crashLines:
		t.crash = append(t.crash, line)
	}
	t.next++
}

func startsCrash(line string) bool {
	for _, p := range crashPrefixes {
		if strings.HasPrefix(line, p) {
			return true
		}
	}
	return false
}

// last returns the lines to show: the start of a crash, "..." for omitted lines, and the end.
func (t *tail) last() []string {
	start := max(0, t.next-tailLines)
	var out []string
	if len(t.crash) > 0 && t.first < start {
		out = append(out, t.crash[:min(len(t.crash), start-t.first)]...)
		if t.first+len(t.crash) < start {
			out = append(out, "...")
		}
	}
	for i := start; i < t.next; i++ {
		out = append(out, t.lines[i%tailLines])
	}
	return out
}
