package config

import "strings"

// nearest returns the candidate most similar to name, or "" if none is similar. Names may be dotted
// keys. The right name in the wrong section is similar, and so is one word of a name ("batch" for
// data.global_batch).
func nearest(name string, candidates []string) string {
	want := normal(name)
	best, bestCost := "", 2+len(last(want))/3 // a lower cost is similar
	for _, c := range candidates {
		if cost := dissimilarity(want, normal(c)); cost < bestCost {
			best, bestCost = c, cost
		}
	}
	return best
}

// normal removes common differences in spelling.
func normal(name string) string {
	return strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
}

// dissimilarity returns the lowest of some counts of edits: of the whole key; of the last name,
// plus one for another section; of one word of the last name, or of its initials if it is a word of
// two letters (lr for learning_rate), plus one and one for another section.
func dissimilarity(want, have string) int {
	cost := edits(want, have)
	moved := 0
	if parent(want) != parent(have) {
		moved = 1
	}
	wantLast, haveLast := last(want), last(have)
	cost = min(cost, edits(wantLast, haveLast)+moved)
	if len(haveLast) == 2 && haveLast == initials(wantLast) {
		cost = min(cost, moved+1)
	}
	if len(wantLast) >= 4 { // a shorter word is in too many names
		for _, word := range strings.Split(haveLast, "_") {
			if e := edits(wantLast, word); e <= 1 {
				cost = min(cost, e+moved+1)
			}
		}
	}
	return cost
}

// initials returns "lr" for "learning_rate".
func initials(name string) string {
	var letters []byte
	for _, word := range strings.Split(name, "_") {
		if word != "" {
			letters = append(letters, word[0])
		}
	}
	return string(letters)
}

// edits returns the number of insertions, deletions, substitutions and swaps of neighbours that
// turn a into b, with no part edited twice (the "optimal string alignment" distance). It compares
// bytes. For absurd lengths it returns a large number.
func edits(a, b string) int {
	const longest = 256
	if len(a) > longest || len(b) > longest {
		return max(len(a), len(b))
	}
	var rows [3][longest + 1]int // two rows back, one row back, this row
	for j := range len(b) + 1 {
		rows[2][j] = j
	}
	for i := 1; i <= len(a); i++ {
		rows[0], rows[1] = rows[1], rows[2]
		before, above, row := &rows[0], &rows[1], &rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			substitute := above[j-1]
			if a[i-1] != b[j-1] {
				substitute++
			}
			row[j] = min(substitute, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[2][len(b)]
}

// NearestKey returns the setting whose name is most similar to a misspelt one; "" if none is.
func NearestKey(name string) string { return nearest(name, keyNames()) }
