// Package cli has the parts of a command line that all programs share: errors of flags in plain
// words, the flags by which other launchers know the number of ranks, and text that fits a
// terminal.
package cli
