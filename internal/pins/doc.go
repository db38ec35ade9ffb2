// Package pins keeps modules in go.mod, at the version that was chosen for them, before the first
// package uses them: what the module builds on is agreed, and tested together, ahead of the code.
// It has no code. The imports stand behind the build tag pins, which nobody sets and which `go mod
// tidy` heeds all the same. A line goes when a package of this module imports the module itself.
package pins
