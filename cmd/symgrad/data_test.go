package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/symgrad/symgrad/internal/tool/cli/clitest"
)

// dataFiles writes files below a new folder.
func dataFiles(t *testing.T, all map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range all {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestShowKnowsDataSets by their names and contents.
func TestShowKnowsDataSets(t *testing.T) {
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewRGBA(image.Rect(0, 0, 40, 30)), nil); err != nil {
		t.Fatal(err)
	}
	cifar := make([]byte, 3*3073)
	cifar[3073] = 9
	wrong := slices.Clone(cifar)
	wrong[0] = 10
	cut := photo.Bytes()[:photo.Len()/2]
	idx := []byte{0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 9, 8}
	for name, c := range map[string]struct {
		files map[string][]byte
		args  []string // after show; DIR is the folder
		code  int
		want  []string
	}{
		"idx folder": {map[string][]byte{"t10k-labels-idx1-ubyte": idx, "notes.txt": nil}, []string{"DIR"}, 0, []string{"DIR/t10k-labels-idx1-ubyte  idx  1x3 bytes  from 7 to 9\n"}},
		"idx file":   {map[string][]byte{"x.idx": idx[:14]}, []string{"DIR/x.idx"}, 1, []string{"DIR/x.idx is damaged: data ends after 2 of 3 bytes, at byte 14"}},
		"cifar":      {map[string][]byte{"data_batch_1.bin": cifar}, []string{"DIR"}, 0, []string{"DIR: CIFAR-10, 3 training images of 32x32\n  0  0  2\n", "  9  9  1\n"}},
		"cifar test": {map[string][]byte{"test_batch.bin": wrong}, []string{"DIR"}, 1, []string{"test_batch.bin: label 10 of image 0, at byte 0"}},
		"cifar gap":  {map[string][]byte{"data_batch_1.bin": cifar, "data_batch_3.bin": cifar}, []string{"DIR"}, 1, []string{"data_batch_2.bin: file does not exist"}},
		"images": {
			map[string][]byte{"cat/1.jpg": photo.Bytes(), "cat/2.jpg": photo.Bytes(), "dog/3.jpg": photo.Bytes()},
			[]string{"--check", "DIR"},
			0,
			[]string{"DIR: 3 images in 2 classes\n  0  cat  2\n  1  dog  1\n", "all 3 images can be decoded\n"},
		},
		"damaged images": {
			map[string][]byte{"cat/1.jpg": cut, "dog/3.jpg": photo.Bytes(), "dog/4.jpg": nil},
			[]string{"--check", "DIR"},
			1,
			[]string{"image folder: DIR/cat/1.jpg: invalid argument: damaged JPEG", "dog/4.jpg", "DIR: 2 of 3 images are damaged"},
		},
		"not checked": {map[string][]byte{"cat/1.jpg": cut}, []string{"DIR"}, 0, []string{"1 images in 1 classes"}},
		"forced":      {map[string][]byte{"data_batch_1.bin": cifar[:3072]}, []string{"--kind", "tokens", "DIR"}, 0, []string{"uint16 without header  1536 tokens"}},
		"nothing":     {nil, []string{"DIR"}, 1, []string{"has no file *.bin"}},
	} {
		dir := dataFiles(t, c.files)
		args := []string{"data", "show"}
		for _, a := range c.args {
			args = append(args, strings.ReplaceAll(a, "DIR", dir))
		}
		var out bytes.Buffer
		if code := execute(newRootCommand(), args, &out, &out); code != c.code {
			t.Errorf("%s: code %d, want %d", name, code, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), strings.ReplaceAll(want, "DIR", dir)) {
				t.Errorf("%s: %s\nwant %s", name, out.String(), want)
			}
		}
	}
}

// TestSignalLeavesNoFiles of tokens, while tokenize waits for standard input.
func TestSignalLeavesNoFiles(t *testing.T) {
	program, err := exec.LookPath("symgrad") // TestMain makes it
	if err != nil {
		if program, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := dataFiles(t, map[string][]byte{"one.txt": []byte("one two three four")})
		cmd := exec.Command(program, "data", "tokenize", "--shard-tokens", "2", "--out", filepath.Join(dir, "out"), filepath.Join(dir, "one.txt"), "-")
		cmd.Args[0] = "symgrad"
		var stderr strings.Builder
		cmd.Stderr = &stderr
		in, errIn := cmd.StdinPipe()
		out, errOut := cmd.StdoutPipe()
		if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n') // the first text is done: files are there
		if files, _ := filepath.Glob(filepath.Join(dir, "out", "*.bin")); err != nil || len(files) == 0 {
			t.Errorf("%q, %v, files %v", line, err, files)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		_ = in.Close()
		files, _ := os.ReadDir(filepath.Join(dir, "out"))
		if want := fmt.Sprintf("symgrad: stopped by signal: %v: no file of tokens stays\n", sig); cmd.ProcessState.ExitCode() != 128+int(sig) || stderr.String() != want || len(files) != 0 {
			t.Errorf("%v: %v, stderr %q, files %v", sig, err, stderr.String(), files)
		}
	}
}

// TestTerminalShowsTheProgress on a line that is removed at the end.
func TestTerminalShowsTheProgress(t *testing.T) {
	const columns = 40
	t.Setenv("COLUMNS", "")
	dir := dataFiles(t, map[string][]byte{"a.txt": bytes.Repeat([]byte("some words of a text "), 100_000)})
	screen, terminal := clitest.Terminal(t, columns)
	text := make(chan string)
	go func() { text <- readScreen(screen) }()
	var out bytes.Buffer
	code := execute(newRootCommand(), []string{"data", "tokenize", "--out", filepath.Join(dir, "out"), filepath.Join(dir, "a.txt")}, &out, terminal)
	terminal.Close()
	shown := <-text
	if code != 0 || !strings.Contains(out.String(), "a.txt: 2100000 bytes") {
		t.Errorf("code %d, %s", code, out.String())
	}
	drawn := strings.Split(strings.TrimSuffix(shown, "\r"), "\r")
	if !strings.HasPrefix(drawn[0], dir[:10]) || strings.TrimSpace(drawn[len(drawn)-1]) != "" {
		t.Errorf("the terminal shows %q", shown)
	}
	for _, line := range drawn {
		if len(line) >= columns {
			t.Errorf("a line of %d columns: %q", len(line), line)
		}
	}
}
