// Package cli has the common parts of the programs' command lines: errors of flags in plain words,
// the names that other launchers have for the number of ranks, and text wrapped for a terminal.
package cli
