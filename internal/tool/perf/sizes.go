package perf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize parses a number of bytes as nccl-tests does: a number, perhaps with a point, and
// perhaps K, M or G of either case, in steps of 1024.
//
// Errors: anything else, a negative number, or one of 2^63 and more.
func ParseSize(s string) (int64, error) {
	unit := 1.0
	number := s
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			unit = 1 << 10
		case 'm', 'M':
			unit = 1 << 20
		case 'g', 'G':
			unit = 1 << 30
		}
	}
	if unit > 1 {
		number = s[:len(s)-1]
	}
	v, err := strconv.ParseFloat(number, 64)
	// ParseFloat accepts more than a size: "0x10", "1_000", "inf", "1e3".
	if err != nil || number == "" || strings.Trim(number, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is no size: want bytes, or a number with K, M or G, as 64M", s)
	}
	if v *= unit; v >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more than memory holds", s)
	}
	return int64(v), nil
}

// FormatSize returns bytes in the form of ParseSize, with the largest unit that divides: "64M".
func FormatSize(bytes int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "G"}, {20, "M"}, {10, "K"}} {
		if bytes != 0 && bytes%(1<<u.shift) == 0 {
			return strconv.FormatInt(bytes>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// sizes returns the sizes from lowest to highest: each factor times the previous one, or step more
// if step is not 0.
func sizes(lowest, highest, step int64, factor int) []int64 {
	var list []int64
	for b := lowest; b <= highest; {
		list = append(list, b)
		next := b + step
		if step == 0 {
			if b > math.MaxInt64/int64(factor) {
				break
			}
			next = b * int64(factor)
		}
		if next <= b { // an overflow, or 0 times something
			break
		}
		b = next
	}
	return list
}
