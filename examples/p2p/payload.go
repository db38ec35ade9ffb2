package main

// wordBytes is the size of the words that a message is made of.
const wordBytes = 8

// word is word i of message m: another one for every message and place.
func word(m, i int) uint64 {
	x := uint64(m)<<32 ^ uint64(i)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the finalizer of splitmix64 (Steele, Lea, Flood 2014)
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill makes message m.
func fill(words []uint64, m int) {
	for i := range words {
		words[i] = word(m, i)
	}
}

// differences is how many words are not those of message m.
func differences(words []uint64, m int) int {
	n := 0
	for i, v := range words {
		if v != word(m, i) {
			n++
		}
	}
	return n
}

// sum is that of the words.
func sum(words []uint64) uint64 {
	var s uint64
	for _, v := range words {
		s += v
	}
	return s
}
