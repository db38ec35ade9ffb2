package probe

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChildThatDiesIsAnAnswer(t *testing.T) {
	for _, tt := range []struct {
		define, want string
	}{
		{"CRASH", "the process that loaded it died: signal: segmentation fault: about to crash"},
		{"EXIT", "the process that loaded it died: exit status 3: FATAL ERROR: a part is missing"},
	} {
		file := fake(t, "libfake.so", "NCCL=22803", tt.define)
		got := child()(deadline(t), Question{"nccl", file})
		// A core dump is noted by the kernel's settings, not by ours.
		got.Problem = strings.Replace(got.Problem, " (core dumped)", "", 1)
		if want := (Answer{Loaded: true, Path: file, Problem: tt.want}); !cmp.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", tt.define, got, want)
		}
	}
}

func TestChildThatHangsIsEnded(t *testing.T) {
	file := fake(t, "libfake.so", "HANG")
	const limit = 200 * time.Millisecond // however long it is, there is no answer
	got := askWithin(deadline(t), limit, []string{os.Args[0], askWord}, Question{"nccl", file})
	if want := "the process that loaded it did not answer within 200ms"; got.Problem != want {
		t.Errorf("%q, want %q", got.Problem, want)
	}
	ctx, cancel := context.WithCancel(deadline(t))
	cancel()
	if got := child()(ctx, Question{"nccl", file}); got.Problem != "the question was interrupted: context canceled" {
		t.Errorf("%+v", got)
	}
}

func TestChildThatSaysNothingOrIsNotThere(t *testing.T) {
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"true"}, "the process that loaded it ended without an answer"},
		{[]string{"echo", "symgrad-answer: {broken"}, "the process that loaded it ended without an answer"},
		{[]string{"/absent/program"}, "could not be asked: fork/exec /absent/program: no such file or directory"},
	} {
		got := Child(tt.command...)(deadline(t), Question{"nccl", "libnccl.so.2"})
		if got.Problem != tt.want {
			t.Errorf("%v: %q, want %q", tt.command, got.Problem, tt.want)
		}
	}
}

func TestWindowKeepsTheEnd(t *testing.T) {
	var w window
	for range 5 * windowBytes / 1000 {
		if n, err := w.Write(bytes.Repeat([]byte("x"), 1000)); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := w.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if n := len(w.text); n < windowBytes || n > 2*windowBytes+1000 || !bytes.HasSuffix(w.text, []byte("xthe end")) {
		t.Errorf("it keeps %d B, want %d to %d with the end", n, windowBytes, 2*windowBytes+1000)
	}
}

func TestFirstLineIsShort(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, tt := range []struct{ text, want string }{
		{"", ""}, {"\n \n", ""}, {"\n  one \ntwo", "one"}, {long, strings.Repeat("é", 100) + "..."},
	} {
		if got := firstLine(tt.text); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}
