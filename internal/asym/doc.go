// Package asym has a store that publishes without a fence, for words that one rank writes and another polls.
package asym
