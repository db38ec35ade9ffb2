package launch

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// lastWordMark begins a line on stderr that explains the end of a rank. It is ASCII's record
// separator, which terminals do not show.
const lastWordMark = "\x1e"

// LastWord writes text, the reason why this rank ends, as lines to stderr. A launcher of this
// project shows equal lines of several ranks once: text may name the rank, as "rank 1 of 4: ". It
// marks the failure of the job for a launcher that supervises mpirun or another one.
func (e Env) LastWord(stderr io.Writer, text string) {
	if m := OpenMarks(e); m != nil {
		_ = errors.Join(m.fail(), m.Close()) // the text says more
	}
	mark := ""
	if e.StoreFD > 0 {
		mark = lastWordMark
	}
	for line := range strings.Lines(strings.TrimSuffix(text, "\n")) {
		fmt.Fprintln(stderr, mark+strings.TrimSuffix(line, "\n"))
	}
}

// lastWords are the lines of LastWord of all ranks, in the order of their first appearance.
type lastWords struct {
	size int
	said []lastWord
}

// lastWord is one line, without the name of the rank, and the ranks that wrote it.
type lastWord struct {
	text  string
	key   string // text with any rank's number instead of that of the rank
	ranks []int
}

// add records a line of a rank.
//
// Returns: whether it is the first rank with this line; named if the line contains the name of the
// rank.
func (l *lastWords) add(rank int, line string) (first, named bool) {
	own := fmt.Sprintf("rank %d of %d: ", rank, l.size)
	text := strings.Replace(line, own, "", 1)
	named = text != line
	key := strings.ReplaceAll(text, fmt.Sprintf("rank %d/%d", rank, l.size), "rank n") // in errors of operations
	for i := range l.said {
		if w := &l.said[i]; w.key == key {
			if w.ranks[len(w.ranks)-1] != rank {
				w.ranks = append(w.ranks, rank)
			}
			return false, named
		}
	}
	l.said = append(l.said, lastWord{text, key, []int{rank}})
	return true, named
}

// shared returns a line for each last word of several ranks.
func (l *lastWords) shared() []string {
	var lines []string
	for i, w := range l.said {
		same := i > 0 && len(l.said[i-1].ranks) == len(w.ranks) // the next line of one text
		if len(w.ranks) < 2 || same && rankNames(l.said[i-1].ranks, l.size) == rankNames(w.ranks, l.size) {
			continue
		}
		lines = append(lines, rankNames(w.ranks, l.size)+" ended with the same error: "+abridged(w.text))
	}
	return lines
}

// of reports whether another rank wrote one of rank's lines.
func (l *lastWords) of(rank int) bool {
	for _, w := range l.said {
		for _, r := range w.ranks {
			if r == rank && len(w.ranks) > 1 {
				return true
			}
		}
	}
	return false
}

// abridged returns the beginning of a text that was shown before.
func abridged(text string) string {
	const most = 40
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

// rankNames returns "all 4 ranks", or "ranks 0-2, 5", in ascending order.
func rankNames(ranks []int, size int) string {
	if len(ranks) == size {
		return fmt.Sprintf("all %d ranks", size)
	}
	have := map[int]bool{}
	for _, r := range ranks {
		have[r] = true
	}
	var parts []string
	for r := 0; r < size; r++ {
		if !have[r] {
			continue
		}
		first := r
		for have[r+1] {
			r++
		}
		part := strconv.Itoa(first)
		if r > first {
			part += "-" + strconv.Itoa(r)
		}
		parts = append(parts, part)
	}
	return "ranks " + strings.Join(parts, ", ")
}
