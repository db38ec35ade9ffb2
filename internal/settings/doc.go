// Package settings is what the settings of a run say to the packages that do the work: config knows
// neither of them, and they take plain structs. Programs that train, and symgrad plan, which tells
// what they will take, mean the same by a setting.
package settings
