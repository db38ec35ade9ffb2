package data_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/dist"
)

// TestWrittenTokensAreRead writes shards of 4 tokens, in calls that do not end where files do.
func TestWrittenTokensAreRead(t *testing.T) {
	for format, most := range map[data.TokenFormat]int{data.TokensHeaderUint16: 1<<16 - 1, data.TokensHeaderUint32: 1<<31 - 1} {
		dir := filepath.Join(t.TempDir(), "new")
		w, err := data.NewTokenWriter(data.TokenWriterConfig{Dir: dir, Name: "text", Format: format, ShardTokens: 4})
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]int{{1, 2, 3}, nil, {4, 5, 6, 7, 8}, {most, 0}} {
			if err := w.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), w.Close(), w.Abandon()); err != nil {
			t.Fatal(err)
		}
		if err := w.Write([]int{1}); !errors.Is(err, dist.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		names, err := os.ReadDir(dir)
		if err != nil || len(names) != 3 || names[2].Name() != "text_000002.bin" || len(w.Paths()) != 3 {
			t.Fatalf("%v, %v, %v", names, w.Paths(), err)
		}
		tokens := open(t, data.TokensConfig{Paths: []string{dir}})
		got := make([]int32, tokens.Len())
		if err := tokens.Read(0, got); err != nil || !slices.Equal(got, []int32{1, 2, 3, 4, 5, 6, 7, 8, int32(most), 0}) {
			t.Errorf("%v: %v, %v", format, got, err)
		}
		if s := tokens.Shards(); s[0].Tokens != 4 || s[2].Tokens != 2 || s[0].Format != format {
			t.Errorf("%+v", s)
		}
		if _, err := data.NewTokenWriter(data.TokenWriterConfig{Dir: dir, Name: "text", Format: format}); !errors.Is(err, dist.ErrInvalid) ||
			!strings.Contains(err.Error(), "text_000000.bin exists") {
			t.Errorf("over the files of another text: %v", err)
		}
	}
}

// TestTokensThatDoNotFit: no file of the writer stays.
func TestTokensThatDoNotFit(t *testing.T) {
	for _, token := range []int{-1, 1 << 16} {
		dir := t.TempDir()
		w, err := data.NewTokenWriter(data.TokenWriterConfig{Dir: dir, Name: "text", Format: data.TokensHeaderUint16, ShardTokens: 2})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.Write([]int{1, 2, 3, token}); !errors.Is(err, dist.ErrInvalid) {
				t.Errorf("token %d: %v", token, err)
			}
		}
		if err := w.Close(); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("Close: %v", err)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 0 || len(w.Paths()) != 0 {
			t.Errorf("%v, %v", names, err)
		}
	}
}

// TestAFileThatCannotBeNamed: a folder has the name of the second file.
func TestAFileThatCannotBeNamed(t *testing.T) {
	dir := t.TempDir()
	w, err := data.NewTokenWriter(data.TokenWriterConfig{Dir: dir, Name: "text", ShardTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "text_000001.bin")
	if err := errors.Join(w.Write([]int{1, 2, 3}), os.Mkdir(taken, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "text_000001.bin") {
		t.Errorf("%v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestTokenWriterRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []data.TokenWriterConfig{
		{Dir: dir, Format: data.TokensHeaderUint16},
		{Dir: dir, Name: "a/b", Format: data.TokensHeaderUint16},
		{Dir: dir, Name: "text", Format: data.TokensUint16},
		{Dir: dir, Name: "text", Format: 7},
		{Dir: dir, Name: "text", Format: data.TokensHeaderUint16, ShardTokens: -1},
	} {
		if _, err := data.NewTokenWriter(c); !errors.Is(err, dist.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
