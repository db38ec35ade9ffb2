// Package settings converts the settings of a run into the configurations of the packages that do
// the work. Package config does not know those packages, and they take plain structs. Training
// programs and symgrad plan use it, so settings mean the same in both.
package settings
