package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/symgrad/symgrad/config"
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	yamlBlock  = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	comment    = regexp.MustCompile(`(^|\s+)#.*`)
)

// TestCommandsInDocumentsAreValid parses every command of a sh block in README.md, docs/ and
// bench/, and every yaml block: flags, settings, files and targets must exist.
func TestCommandsInDocumentsAreValid(t *testing.T) {
	t.Chdir("../..")
	names, err := filepath.Glob("docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, name := range append(names, "README.md", "CONTRIBUTING.md", "bench/README.md", "docs/README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
				for command := range strings.SplitSeq(comment.ReplaceAllString(strings.TrimSpace(line), ""), "&&") {
					words := strings.Fields(command)
					for len(words) > 0 && strings.Contains(words[0], "=") {
						words = words[1:] // of the environment
					}
					if len(words) == 0 {
						continue
					}
					if commands++; !known(t, words) {
						t.Errorf("%s: no rule here for the command %q", name, command)
					}
				}
			}
		}
		for _, block := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			file := filepath.Join(t.TempDir(), "run.yaml")
			if err := os.WriteFile(file, []byte(block[1]), 0o666); err != nil {
				t.Fatal(err)
			}
			if _, _, err := config.Load(config.Source{File: file}); err != nil {
				t.Errorf("%s: yaml: %v", name, err)
			}
		}
	}
	if commands < 20 {
		t.Errorf("%d commands found: does the expression still find the blocks?", commands)
	}
}

// known checks a command of which it knows the program.
func known(t *testing.T, words []string) bool {
	t.Helper()
	args := words[1:]
	switch program := words[0]; {
	case program == "symgrad", program == "bin/symgrad", program == "./symgrad":
		parsed(t, args)
	case program == "go" && args[0] == "run" && args[1] == "./cmd/symgrad":
		parsed(t, args[2:])
	case program == "go" && args[0] == "tool" && args[1] == "symgrad": // of a module of the reader
		parsed(t, args[2:])
	case program == "go":
		for _, word := range args {
			if path, ok := strings.CutPrefix(word, "./"); ok {
				exists(t, strings.TrimSuffix(path, "..."))
			}
		}
		checkSettings(t, args)
	case program == "make":
		makefile, err := os.ReadFile("Makefile")
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range args {
			if !strings.Contains(word, "=") && !strings.Contains(string(makefile), "\n"+word+":") {
				t.Errorf("make has no target %s", word)
			}
		}
	case strings.HasPrefix(program, "bench/"):
		text, err := os.ReadFile(program)
		if err != nil {
			t.Error(err)
		}
		for _, word := range args {
			if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !strings.Contains(string(text), flag) {
				t.Errorf("%s has no flag %s", program, flag)
			}
		}
	case strings.HasPrefix(program, "bin/"):
		exists(t, filepath.Join("examples", filepath.Base(program)))
		checkSettings(t, args)
	case program == "./own": // of the reader, with the flags of package train
		checkSettings(t, args)
	case program == "mv", program == "cd", program == "torchrun", program == "mpirun", program == "srun", program == "export", program == "git", strings.HasSuffix(program, ".sh"), strings.HasSuffix(program, ".test"):
	default:
		_, err := exec.LookPath(program)
		return err == nil
	}
	return true
}

// parsed parses the flags of a command of symgrad, and its settings.
func parsed(t *testing.T, args []string) {
	t.Helper()
	root := newRootCommand()
	root.InitDefaultHelpCmd()
	command, rest, err := root.Find(args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err != nil {
		t.Errorf("symgrad %s: %v", strings.Join(args, " "), err)
	}
	checkSettings(t, args)
}

// checkSettings checks --config and --set.
func checkSettings(t *testing.T, args []string) {
	t.Helper()
	var s config.Source
	for i, word := range args[:max(len(args)-1, 0)] {
		switch word {
		case "--config":
			s.File = args[i+1]
		case "--set":
			s.Set = append(s.Set, args[i+1])
		}
	}
	if strings.HasPrefix(s.File, "configs/") || s.File == "" {
		if _, _, err := config.Load(s); err != nil {
			t.Errorf("%s: %v", strings.Join(args, " "), err)
		}
	}
}

func exists(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
