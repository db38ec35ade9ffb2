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

// ErrPeer is returned by Attach when another rank rejected its arguments. It quotes that rank's
// error. The group stays usable.
var ErrPeer = errors.New("refused on another rank")

// digestBytes is the size of a digest, which ranks exchange first. They exchange texts only if
// digests differ or report an error.
//
//	byte 0      1 if the rank has an error, else 0
//	bytes 1-32  SHA-256 of its text: the error, or the lines
//	bytes 33-40 length of the text, little-endian
const digestBytes = 41

// agree compares lines over all ranks and passes a rank's error to all ranks.
//
// Collective. Errors: local on a rank that has one, ErrPeer on the others; ErrPlan; those of the
// group.
func agree(t *team, lines []string, local error) error {
	_, err := agreeWith(t, lines, local, nil)
	return err
}

// agreeWith is agree that also gives every rank of the group each rank's more. All have one length;
// contents may differ. The replicas compare after the ranks of each group.
//
// Collective. Errors: as agree.
func agreeWith(t *team, lines []string, local error, more []byte) ([][]byte, error) {
	all, err := agreeIn(t.Group, lines, local, more)
	if t.across != nil {
		_, err = agreeIn(t.across, lines, err, nil)
	}
	return all, err
}

// agreeIn is agreeWith for the ranks of one group.
//
// Collective. Errors: as agree.
func agreeIn(w *dist.Group, lines []string, local error, more []byte) ([][]byte, error) {
	text := strings.Join(lines, "\n")
	digest := make([]byte, digestBytes)
	if local != nil {
		text, digest[0] = local.Error(), 1
	}
	sum := sha256.Sum256([]byte(text))
	copy(digest[1:], sum[:])
	binary.LittleEndian.PutUint64(digest[33:], uint64(len(text)))
	digests, err := gather(w, planName, append(digest, more...))
	if err != nil {
		return nil, errors.Join(local, err)
	}
	all := make([][]byte, len(digests))
	for r, c := range digests {
		digests[r], all[r] = c[:digestBytes], c[digestBytes:]
	}
	longest := uint64(0)
	equal := true
	for _, c := range digests {
		equal = equal && c[0] == 0 && bytes.Equal(c, digests[0])
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
		texts[r] = texts[r][:binary.LittleEndian.Uint64(digests[r][33:])]
	}
	if local != nil {
		return nil, local
	}
	return nil, judge(digests, texts)
}

// judge returns the error that digests and texts of the ranks imply.
func judge(digests, texts [][]byte) error {
	for r, c := range digests {
		if c[0] != 0 {
			return fmt.Errorf("%w: rank %d: %s", ErrPeer, r, texts[r])
		}
	}
	for r := range digests {
		if bytes.Equal(digests[r], digests[0]) {
			continue
		}
		a, b := firstDifference(strings.Split(string(texts[0]), "\n"), strings.Split(string(texts[r]), "\n"))
		return fmt.Errorf("%w: rank 0 has %q, rank %d has %q; give all ranks one model and one config", ErrPlan, a, r, b)
	}
	return nil
}

// firstDifference returns the first line in which a and b differ, from each.
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

// planName names the operations of agree.
const planName = "ddp plan"

// gather returns every rank's mine, by rank; all have one length. name names the operation.
func gather(w *dist.Group, name string, mine []byte) ([][]byte, error) {
	all := make([]byte, len(mine)*w.Size())
	if w.Device() != tensor.Host {
		return gatherOnGPU(w, name, mine)
	}
	work, err := w.With(dist.Hints{Name: name}).AllGather(tensor.Of(all), tensor.Of(mine))
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
