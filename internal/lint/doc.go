// Package lint holds the house rules that a machine can check: who may import whom, what may be
// called where, how long files and functions are, what must be documented. They run as Go tests
// over the source of the whole module, so that a broken rule fails `go test` with the place and the
// reason, and review can look at what no rule can.
//
// Every rule is a Rule: a name, the reason, and a function from the parsed module to findings. The
// tables at the head of each file are the rules' data. A new package enters the table in layers.go
// with a line that says what it may import; an exception to a rule is a line with its reason, next
// to the rule.
//
//	source.go    the module, parsed
//	layers.go    import directions inside the module
//	outside.go   who may import certain foreign packages
//	calls.go     functions that may be called only in certain places
//	graphs.go    how Gorgonia's graphs are read
//	panics.go    where a panic may be
//	sizes.go     lines of files, functions and tests
//	comments.go  documentation, notes to self
//	documents.go code in documents is compiled, links lead somewhere, pages are short
//	results.go   measurements that documents cite exist, and no others do
//
// The idea, and that of a reason with each forbidden import, is that of
// github.com/cockroachdb/pebble/internal/lint and tailscale.com/tstest/deptest.
package lint
