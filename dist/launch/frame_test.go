package launch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/dist"
)

func TestFramesComeBackAsTheyWere(t *testing.T) {
	for _, f := range []frame{
		{kind: opSet, id: 1, key: "k", value: []byte("value")},
		{kind: opGet, id: 1<<32 - 1, key: strings.Repeat("k", MaxKeyBytes)},
		{kind: replyOK, value: bytes.Repeat([]byte{7}, MaxValueBytes)},
		{kind: opGoodbye},
	} {
		stream := bytes.NewReader(append(appendFrame(nil, f), 99))
		got, err := readFrame(stream, maxFrameBytes)
		if err != nil {
			t.Fatal(err)
		}
		if got.kind != f.kind || got.id != f.id || got.key != f.key || !bytes.Equal(got.value, f.value) {
			t.Errorf("frame of kind %d changed on the way", f.kind)
		}
		if stream.Len() != 1 {
			t.Errorf("frame of kind %d: %d B left, want 1", f.kind, stream.Len())
		}
	}
}

func TestReadFrameRefusesWhatIsNone(t *testing.T) {
	head := func(total uint32, keyBytes uint16) []byte {
		b := binary.BigEndian.AppendUint32(nil, total)
		b = append(b, opSet, 0, 0, 0, 1)
		return binary.BigEndian.AppendUint16(b, keyBytes)
	}
	for name, tc := range map[string]struct {
		bytes []byte
		want  error
	}{
		"nothing":                {nil, io.EOF},
		"half a head":            {head(7, 0)[:5], io.ErrUnexpectedEOF},
		"no body":                {head(8, 1), io.ErrUnexpectedEOF},
		"half a body":            {append(head(10, 1), 'k'), io.ErrUnexpectedEOF},
		"shorter than its head":  {head(6, 0), dist.ErrInvalid},
		"shorter than its key":   {head(8, 2), dist.ErrInvalid},
		"longer than the limit":  {head(maxHelloBytes-3, 0), dist.ErrInvalid},
		"as long as can be said": {head(1<<32-1, 0), dist.ErrInvalid},
		"key longer than a key":  {head(3000, MaxKeyBytes+1), dist.ErrInvalid},
	} {
		if _, err := readFrame(bytes.NewReader(tc.bytes), maxHelloBytes); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestHelloComesBackAsItWas(t *testing.T) {
	want := hello{rank: 3, size: 4, job: "job"}
	got, err := decodeHello(frame{kind: opHello, key: helloKey, value: want.encode()})
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, f := range []frame{
		{kind: opSet, key: helloKey, value: want.encode()},
		{kind: opHello, key: "symgrad-store/0", value: want.encode()},
		{kind: opHello, key: helloKey, value: want.encode()[:7]},
	} {
		if _, err := decodeHello(f); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%+v: got %v, want dist.ErrInvalid", f, err)
		}
	}
}

func TestRanksComeBackAsTheyWere(t *testing.T) {
	for _, ranks := range [][]int{nil, {0}, {3, 1, 1 << 19}} {
		if got := decodeRanks(encodeRanks(ranks)); !slices.Equal(got, ranks) {
			t.Errorf("got %v, want %v", got, ranks)
		}
	}
}

// No reply that a server may send makes the client do anything but return or fail.
func TestRepliesAreErrorsOfTheirKind(t *testing.T) {
	for _, tc := range []struct {
		f    frame
		want error
		says string
	}{
		{frame{kind: replyInvalid, value: []byte("no")}, dist.ErrInvalid, "no"},
		{frame{kind: replyTimeout, value: []byte("late")}, dist.ErrTimeout, "late"},
		{frame{kind: replyDied, value: append(encodeRanks([]int{2}), "gone"...)}, dist.ErrAborted, "rank 2 died: gone"},
		{frame{kind: replyClosed}, dist.ErrClosed, "closed"},
		{frame{kind: replyRetry}, errOver, "over"},
	} {
		if err := tc.f.asError(); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: got %v, want %v", tc.f, err, tc.want)
		}
	}
	for _, f := range []frame{{kind: replyDied, value: []byte{1, 2}}, {kind: replyDied}, {kind: 200}, {kind: opSet}} {
		if err := f.asError(); err == nil || !strings.Contains(err.Error(), "malformed reply") {
			t.Errorf("%+v: got %v, want a malformed reply", f, err)
		}
	}
	if err := (frame{kind: replyOK}).asError(); err != nil {
		t.Error(err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, frame{kind: opSet, id: 9, key: "key", value: []byte("value")}))
	f.Add(appendFrame(nil, frame{kind: opHello, id: 1, key: helloKey, value: hello{1, 2, "job"}.encode()}))
	f.Add([]byte{0, 0, 0, 6, 1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		got, err := readFrame(r, maxHelloBytes)
		if err != nil {
			return
		}
		read := data[:len(data)-r.Len()]
		if again := appendFrame(nil, got); !bytes.Equal(again, read) {
			t.Fatalf("read %x, which is written %x", read, again)
		}
		if h, err := decodeHello(got); err == nil {
			if !bytes.Equal(h.encode(), got.value) {
				t.Fatalf("hello %x is written %x", got.value, h.encode())
			}
		}
	})
}
