package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// canonicalHeader names the format, so that another format cannot have the same hash.
const canonicalHeader = "symgrad config 6\n"

// Canonical returns the settings that must agree on all ranks of a run as text: a header, then
// "key: value" lines in the order of Config. Two configs define the same computation if and only if
// their texts are equal.
//
// It omits settings that may differ between ranks (Key.Hashed is false: folder names, logging, time
// limits), and settings that have no effect.
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

// canonical returns the value of f in the syntax of a file. It normalizes optim.loss_scale, a text
// that may be a number.
func (f *field) canonical(c *Config) string {
	v := f.get(c)
	if f.key == "optim.loss_scale" {
		if scale, dynamic, err := c.Optim.Scale(); err == nil && !dynamic {
			v = format(scale)
		}
	}
	return format(v)
}

// Hash returns the SHA-256 of Canonical in hexadecimal, which ranks compare.
func (c *Config) Hash() string {
	sum := sha256.Sum256([]byte(c.Canonical()))
	return hex.EncodeToString(sum[:])
}
