package data_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
)

// raw returns tokens as nanoGPT writes them.
func raw(tokens ...uint16) []byte {
	var b []byte
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint16(b, t)
	}
	return b
}

// headed returns a file of llm.c: a header of 256 int32, and the rest.
func headed(magic, version, count uint32, rest []byte) []byte {
	b := make([]byte, 1024)
	for i, word := range []uint32{magic, version, count} {
		binary.LittleEndian.PutUint32(b[4*i:], word)
	}
	return append(b, rest...)
}

// files writes files into a new folder.
func files(t testing.TB, all map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T, c data.TokensConfig) *data.Tokens {
	t.Helper()
	tokens, err := data.OpenTokens(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tokens.Close(); err != nil {
			t.Error(err)
		}
	})
	return tokens
}

// TestTokensOfAllFormatsAreOneText has a file of each format in a folder, whose name has a
// character of patterns.
func TestTokensOfAllFormatsAreOneText(t *testing.T) {
	wide := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 128_255), 0)
	dir := files(t, map[string][]byte{
		"a.bin": raw(1, 2, 50_256), "b.bin": headed(20240520, 1, 2, raw(65_535, 4)), "c.bin": headed(20240801, 7, 2, wide), "notes.txt": []byte("no tokens"),
	})
	odd := filepath.Join(t.TempDir(), "se[t*")
	if err := os.Rename(dir, odd); err != nil {
		t.Fatal(err)
	}
	tokens := open(t, data.TokensConfig{Paths: []string{odd, filepath.Join(odd, "a.bin")}})
	want := []int32{1, 2, 50_256, 65_535, 4, 128_255, 0, 1, 2, 50_256}
	if tokens.Len() != len(want) {
		t.Fatalf("%d tokens, want %d", tokens.Len(), len(want))
	}
	for at := range want {
		for end := at; end <= len(want); end++ {
			got := make([]int32, end-at)
			if err := tokens.Read(at, got); err != nil || !slices.Equal(got, want[at:end]) {
				t.Errorf("tokens %d to %d: %v (%v), want %v", at, end, got, err, want[at:end])
			}
		}
	}
	var formats []string
	for _, s := range tokens.Shards() {
		formats = append(formats, s.Format.String())
	}
	if got := strings.Join(formats, ", "); got != "uint16 without header, uint16 with header, uint32 with header, uint16 without header" {
		t.Errorf("formats %s", got)
	}
	for _, r := range []struct{ at, n int }{{-1, 1}, {10, 1}, {0, 11}, {11, 0}} {
		if err := tokens.Read(r.at, make([]int32, r.n)); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%d tokens from %d: %v", r.n, r.at, err)
		}
	}
}

// TestSamplesAreWindows: the target of each token is the next one, also over the end of a file, and
// the last token is only a target.
func TestSamplesAreWindows(t *testing.T) {
	dir := files(t, map[string][]byte{"a.bin": raw(0, 1, 2, 3), "b.bin": raw(4, 5, 6)})
	tokens := open(t, data.TokensConfig{Paths: []string{dir}, Vocabulary: 7})
	for context, want := range map[int]int{0: 0, 1: 6, 2: 3, 3: 2, 4: 1, 6: 1, 7: 0} {
		if got := tokens.Samples(context); got != want {
			t.Errorf("%d samples of %d tokens, want %d", got, context, want)
		}
		for i := range want {
			inputs, targets := make([]int32, context), make([]int32, context)
			if err := tokens.Sample(i, inputs, targets); err != nil {
				t.Fatal(err)
			}
			for k := range context {
				if inputs[k] != int32(i*context+k) || targets[k] != inputs[k]+1 {
					t.Errorf("sample %d of %d: inputs %v, targets %v", i, context, inputs, targets)
				}
			}
		}
		inputs := make([]int32, context)
		if err := tokens.Sample(want, inputs, inputs); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("sample %d of %d: %v", want, want, err)
		}
	}
	if err := tokens.Sample(0, make([]int32, 2), make([]int32, 3)); !errors.Is(err, dist.ErrInvalid) {
		t.Errorf("targets of another length: %v", err)
	}
}

func TestDamagedTokensAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":     {nil, "the file is empty"},
		"odd":       {[]byte("\x1f\x8b\x08tokens"), "9 bytes, and 2 bytes are a token: it is compressed by gzip"},
		"cut":       {headed(20240520, 1, 100, raw(1, 2, 3)), "100 tokens by byte 8 of the header, which need 1224 bytes; the file has 1030"},
		"longer":    {headed(20240520, 1, 1, raw(1, 2, 3)), "1 tokens by byte 8 of the header, which need 1026 bytes; the file has 1030"},
		"half":      {headed(20240801, 7, 1, raw(1, 2, 3)), "the file has 1030"},
		"header":    {headed(20240520, 1, 0, nil), "the file has no tokens"},
		"no header": {headed(20240520, 1, 0, nil)[:100], "which need 1024 bytes; the file has 100"},
		"magic":     {headed(20240521, 1, 2, raw(1, 2)), "the magic number in byte 0 of the header is 20240521, want 20240520"},
		"version":   {headed(20240520, 2, 0, nil), "version 2 in byte 4 of the header, want 1"},
	} {
		path := filepath.Join(files(t, map[string][]byte{"a.bin": c.content}), "a.bin")
		if _, err := data.OpenTokens(data.TokensConfig{Paths: []string{path}}); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	text := filepath.Join(files(t, map[string][]byte{"a.txt": []byte("four")}), "a.txt")
	if _, err := data.OpenTokens(data.TokensConfig{Paths: []string{text}}); !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), "its name does not end in .bin") {
		t.Errorf("a text: %v", err)
	}
	folder := t.TempDir()
	missing := filepath.Join(folder, "x.bin")
	for _, c := range []data.TokensConfig{{}, {Paths: []string{folder}}, {Paths: []string{missing}, Vocabulary: -1}} {
		if _, err := data.OpenTokens(c); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := data.OpenTokens(data.TokensConfig{Paths: []string{missing}}); !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), missing) != 1 {
		t.Errorf("a missing file: %v", err)
	}
}

// TestTokensBeyondTheVocabulary names file and byte, in the second file here.
func TestTokensBeyondTheVocabulary(t *testing.T) {
	wide := binary.LittleEndian.AppendUint32(nil, 1<<31)
	dir := files(t, map[string][]byte{"a.bin": raw(0, 1), "b.bin": headed(20240520, 1, 3, raw(2, 50_257, 3)), "c.bin": headed(20240801, 7, 1, wide)})
	tokens := open(t, data.TokensConfig{Paths: []string{dir}, Vocabulary: 50_257})
	got := make([]int32, 3)
	if err := tokens.Read(0, got); err != nil {
		t.Fatal(err)
	}
	err := tokens.Read(1, got)
	if want := filepath.Join(dir, "b.bin") + ": "; !errors.Is(err, dist.ErrInvalid) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "token 50257 at byte 1026; the vocabulary has 50257 tokens") {
		t.Errorf("%v", err)
	}
	if err := open(t, data.TokensConfig{Paths: []string{filepath.Join(dir, "c.bin")}}).Read(0, got[:1]); !errors.Is(err, dist.ErrInvalid) ||
		!strings.Contains(err.Error(), "token 2147483648 at byte 1024") {
		t.Errorf("%v", err)
	}
}

// TestTokensMayBeLargerThanMemory reads the ends of a file of 1 TiB without blocks on the disk.
func TestTokensMayBeLargerThanMemory(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("addresses have 32 bits")
	}
	path := filepath.Join(t.TempDir(), "large.bin")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(1) << 40
	if err := f.Truncate(size); err != nil {
		t.Skipf("no file of this size here: %v", err)
	}
	_, err = f.WriteAt(raw(7), size-2)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	tokens := open(t, data.TokensConfig{Paths: []string{path}})
	got := make([]int32, 2)
	if err := tokens.Read(int(size/2-2), got); err != nil || got[0] != 0 || got[1] != 7 {
		t.Errorf("%v, %v", got, err)
	}
	if err := tokens.Read(0, got); err != nil || got[1] != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestFileThatIsCutLater is one that another program cuts while it is open.
func TestFileThatIsCutLater(t *testing.T) {
	path := filepath.Join(files(t, map[string][]byte{"a.bin": make([]byte, 1<<20)}), "a.bin")
	tokens := open(t, data.TokensConfig{Paths: []string{path}})
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Read(100_000, make([]int32, 8)); err == nil || !strings.Contains(err.Error(), path+": the file was cut") {
		t.Errorf("%v", err)
	}
}
