package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// canonicalHeader names the form, so that another form can never have the same hash.
const canonicalHeader = "symgrad config 5\n"

// Canonical is the settings that must be the same on all ranks of a run, as text: a header, then
// "key: value" lines in the order of Config. Two configs mean the same computation if and only if
// they have the same text.
//
// Not in it: settings that may differ between ranks (Key.Hashed is false: names of folders,
// logging, time limits), and settings that have no effect with the others.
func (c *Config) Canonical() string {
	var b strings.Builder
	b.WriteString(canonicalHeader)
	for _, f := range schema() {
		if f.hashed && f.only.holds(c) {
			b.WriteString(f.key + ": " + f.canonical(c) + "\n")
		}
	}
	return b.String()
}

// canonical is the value of f as Canonical has it: as it would be written in a file, and
// optim.loss_scale, a text that may be a number, as that number would.
func (f *field) canonical(c *Config) string {
	v := f.get(c)
	if f.key == "optim.loss_scale" {
		if scale, dynamic, err := c.Optim.Scale(); err == nil && !dynamic {
			v = format(scale)
		}
	}
	return format(v)
}

// Hash returns the SHA-256 of Canonical in hexadecimal. Ranks compare it, and results carry it.
func (c *Config) Hash() string {
	sum := sha256.Sum256([]byte(c.Canonical()))
	return hex.EncodeToString(sum[:])
}
