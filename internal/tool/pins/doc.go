// Package pins keeps modules in go.mod, at a chosen version, before the first package uses them. So
// dependencies are agreed and tested together before their code is written. The package has no
// code. Its imports have the build tag pins, which no build sets, but `go mod tidy` counts them. A
// line is removed when a package of this module imports the module itself.
package pins
