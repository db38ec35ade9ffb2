package ddp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// ErrPlan is returned by Attach on every rank when ranks differ in settings, parameters, buckets,
// operations or the messages of a hook. It matches dist.ErrMismatch. The group stays usable.
var ErrPlan = fmt.Errorf("%w on the plan", dist.ErrMismatch)

// ErrPeer is returned by Attach when it was refused on another rank, whose error it quotes. The
// group stays usable.
var ErrPeer = errors.New("refused on another rank")

// card is the first message of a rank: it shows whether ranks differ.
//
//	byte 0      1 if the rank has an error, else 0
//	bytes 1-32  SHA-256 of its text: the error, or the lines
//	bytes 33-40 length of the text, little-endian
const cardBytes = 41

// agree compares lines over all ranks and tells every rank of a rank that has an error.
//
// Collective. Errors: local on a rank that has one, ErrPeer on the others; ErrPlan; those of the
// group.
func agree(w *dist.World, lines []string, local error) error {
	_, err := agreeWith(w, lines, local, nil)
	return err
}

// agreeWith is agree that also exchanges a message of each rank. Messages have one length on all
// ranks, and may differ.
//
// Collective. Errors: as agree.
func agreeWith(w *dist.World, lines []string, local error, more []byte) ([][]byte, error) {
	text := strings.Join(lines, "\n")
	card := make([]byte, cardBytes)
	if local != nil {
		text, card[0] = local.Error(), 1
	}
	sum := sha256.Sum256([]byte(text))
	copy(card[1:], sum[:])
	binary.LittleEndian.PutUint64(card[33:], uint64(len(text)))
	cards, err := gather(w, planName, append(card, more...))
	if err != nil {
		return nil, errors.Join(local, err)
	}
	all := make([][]byte, len(cards))
	for r, c := range cards {
		cards[r], all[r] = c[:cardBytes], c[cardBytes:]
	}
	longest := uint64(0)
	equal := true
	for _, c := range cards {
		equal = equal && c[0] == 0 && bytes.Equal(c, cards[0])
		longest = max(longest, binary.LittleEndian.Uint64(c[33:]))
	}
	if equal {
		return all, nil
	}
	padded := make([]byte, longest)
	copy(padded, text)
	texts, err := gather(w, planName, padded)
	if err != nil {
		return nil, errors.Join(local, err)
	}
	for r := range texts {
		texts[r] = texts[r][:binary.LittleEndian.Uint64(cards[r][33:])]
	}
	if local != nil {
		return nil, local
	}
	return nil, judge(cards, texts)
}

// judge returns the error of the ranks' cards and texts.
func judge(cards, texts [][]byte) error {
	for r, c := range cards {
		if c[0] != 0 {
			return fmt.Errorf("%w: rank %d: %s", ErrPeer, r, texts[r])
		}
	}
	for r := range cards {
		if bytes.Equal(cards[r], cards[0]) {
			continue
		}
		a, b := firstDifference(strings.Split(string(texts[0]), "\n"), strings.Split(string(texts[r]), "\n"))
		return fmt.Errorf("%w: rank 0 has %q, rank %d has %q; give all ranks one model and one config", ErrPlan, a, r, b)
	}
	return nil
}

// firstDifference is the first line in which a and b differ, as each has it.
func firstDifference(a, b []string) (string, string) {
	for i := range max(len(a), len(b)) {
		x, y := "nothing more", "nothing more"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return x, y
		}
	}
	return "", ""
}

// planName is the name of the operations of agree.
const planName = "ddp plan"

// gather is every rank's mine, by rank; all have one length. The operation has the given name.
func gather(w *dist.World, name string, mine []byte) ([][]byte, error) {
	all := make([]byte, len(mine)*w.Size())
	if w.Device() != tensor.Host {
		return gatherOnGPU(w, name, mine)
	}
	work, err := w.Named(name).AllGather(tensor.Of(all), tensor.Of(mine))
	if err == nil {
		err = work.Wait()
	}
	if err != nil {
		return nil, err
	}
	parts := make([][]byte, w.Size())
	for r := range parts {
		parts[r] = all[r*len(mine) : (r+1)*len(mine)]
	}
	return parts, nil
}
