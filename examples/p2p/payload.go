package main

// wordBytes is the size of the words of a message.
const wordBytes = 8

// word returns word i of message m, which differs for every message and index.
func word(m, i int) uint64 {
	x := uint64(m)<<32 ^ uint64(i)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the finalizer of splitmix64 (Steele, Lea, Flood 2014)
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill sets words to message m.
func fill(words []uint64, m int) {
	for i := range words {
		words[i] = word(m, i)
	}
}

// differences returns how many words differ from those of message m.
func differences(words []uint64, m int) int {
	n := 0
	for i, v := range words {
		if v != word(m, i) {
			n++
		}
	}
	return n
}

// sum returns the sum of the words.
func sum(words []uint64) uint64 {
	var s uint64
	for _, v := range words {
		s += v
	}
	return s
}
