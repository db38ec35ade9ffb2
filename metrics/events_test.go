package metrics

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// scalars returns the scalars of the only event file in dir, as "loss 3 0.5".
func scalars(t *testing.T, dir string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for first := true; len(b) > 0; first = false {
		n := binary.LittleEndian.Uint64(b)
		event := b[12:][:n]
		if masked(b[:8]) != binary.LittleEndian.Uint32(b[8:]) || masked(event) != binary.LittleEndian.Uint32(b[12+n:]) {
			t.Fatal("a checksum is wrong")
		}
		b = b[16+n:]
		f := fields(t, event)
		if at := math.Float64frombits(f[eventTime].(uint64)); at < 1.7e9 || at > 1e10 {
			t.Errorf("time %v", at)
		}
		if first {
			if string(f[eventVersion].([]byte)) != "brain.Event:2" {
				t.Errorf("the file begins with %v", f)
			}
			continue
		}
		for summary := f[eventSummary].([]byte); len(summary) > 0; {
			_, _, tag := protowire.ConsumeTag(summary)
			value, n := protowire.ConsumeBytes(summary[tag:])
			v := fields(t, value)
			all = append(all, fmt.Sprint(string(v[valueTag].([]byte)), " ", f[eventStep], " ", math.Float32frombits(v[valueScalar].(uint32))))
			summary = summary[tag+n:]
		}
	}
	return all
}

// fields returns the fields of a message, by number.
func fields(t *testing.T, b []byte) map[protowire.Number]any {
	t.Helper()
	all := map[protowire.Number]any{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		b = b[max(n, 0):]
		switch kind {
		case protowire.VarintType:
			all[number], n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			all[number], n = protowire.ConsumeFixed32(b)
		case protowire.Fixed64Type:
			all[number], n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			all[number], n = protowire.ConsumeBytes(b)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
	}
	return all
}

func TestChecksumsAreThoseOfRecordFiles(t *testing.T) {
	// TensorFlow's event files begin with 18 00 00 00 00 00 00 00 a3 7f 4b 22: an event of 24
	// bytes.
	if got := masked([]byte{0x18, 0, 0, 0, 0, 0, 0, 0}); got != 0x224b7fa3 {
		t.Errorf("got %#x", got)
	}
}

func TestEventsOfAResumedRunAreInOneFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[1]*") // a name with characters of patterns
	events := filepath.Join(dir, EventsFolder)
	w := open(t, dir, Config{TensorBoard: true})
	write(t, w, 1, Values{Loss: 0.5, LearningRate: 0.25})
	write(t, w, 2, Values{Loss: math.NaN()})
	write(t, w, 3, Values{Loss: 4})
	if got, want := scalars(t, events), []string{"learning_rate 1 0.25", "loss 1 0.5", "loss 2 NaN", "loss 3 4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, open(t, dir, Config{TensorBoard: true, Resumed: 2}), 3, Values{Loss: 3})
	if got, want := scalars(t, events), []string{"learning_rate 1 0.25", "loss 1 0.5", "loss 2 NaN", "loss 3 3"}; !slices.Equal(got, want) {
		t.Errorf("after resuming %q, want %q", got, want)
	}
}
