// Package pins keeps modules in go.mod, at a chosen version, before the first package uses them. So
// dependencies are agreed and tested together before the code. It has no code. The imports are
// under the build tag pins, which is never set, and which `go mod tidy` respects. A line is deleted
// when a package of this module imports the module itself.
package pins
