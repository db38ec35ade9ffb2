// Package lint has the house rules that a machine can check: allowed imports, calls that only some
// places may make, sizes of files and functions, documentation, plain English. They run as Go tests
// over the source of the whole module. A broken rule fails `go test` with the place and the reason,
// so that review can look at the rest.
//
// Every rule is a Rule: a name, the reason, and a function from the parsed module to findings. The
// tables at the head of each file are the rules' data. A new package gets a line in the table of
// layers.go with its allowed imports. An exception to a rule is a line with its reason, next to the
// rule.
//
//	source.go    the module, parsed
//	layers.go    import directions inside the module
//	outside.go   allowed imports of certain foreign packages
//	calls.go     functions that only certain places may call
//	graphs.go    how Gorgonia's graphs are read
//	panics.go    where a panic is allowed
//	sizes.go     lines of files, functions and tests
//	types.go     methods, fields and files of types; types_exceptions.go has today's exceptions
//	comments.go  documentation, notes to self
//	english.go   banned turns and wide lines in comments
//	stringers.go String methods that fmt does not call
//	operations.go each operation of a program has a case in each part of the compiler
//	documents.go code in documents compiles, links have targets, pages are short
//	results.go   measurements that documents cite exist, and no others
//
// The idea, including a reason for each forbidden import, is from
// github.com/cockroachdb/pebble/internal/tool/lint and tailscale.com/tstest/deptest.
package lint
