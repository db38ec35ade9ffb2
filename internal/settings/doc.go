// Package settings translates the settings of a run into the plain structs of the packages that do
// the work, which config does not know. Training programs and symgrad plan use it, so a setting
// means the same to both.
package settings
