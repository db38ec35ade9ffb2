package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestReferencePagesAreThoseOfTheProgram compares the generated pages of docs/reference with the
// program. -rewrite writes them:
//
//	go test ./cmd/symgrad -run TestReferencePages -rewrite
func TestReferencePagesAreThoseOfTheProgram(t *testing.T) {
	for name, page := range map[string]func(*testing.T) string{
		"config.md":      configPage,
		"cli.md":         func(t *testing.T) string { return cliPage(t, false) },
		"cli-measure.md": func(t *testing.T) string { return cliPage(t, true) },
		"errors.md":      errorsPage,
	} {
		t.Run(name, func(t *testing.T) {
			want := "<!-- go test ./cmd/symgrad -run TestReferencePages -rewrite -->\n" + page(t)
			file := filepath.Join("../../docs/reference", name)
			if *rewrite {
				if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("docs/reference/%s is out of date; run: go test ./cmd/symgrad -run TestReferencePages -rewrite", name)
			}
		})
	}
}

// configPage returns a section with a table for each group of settings.
func configPage(t *testing.T) string {
	lines := strings.SplitAfter(symgrad(t, "config", "keys", "--format=markdown"), "\n")
	head, rows := strings.Join(lines[:2], ""), lines[2:]
	var b strings.Builder
	b.WriteString(`# Settings

The settings of a run from a file. ` + "`symgrad config keys`" + ` prints them, and
` + "`symgrad config show --config FILE`" + ` prints their values with where each comes from. A later source
wins: defaults, the file, variables of the environment such as ` + "`SYMGRAD_OPTIM_LR`, then\n`--set optim.lr=0.1`" + `.

Settings "in the hash" must be equal on all ranks. A resumed run may change many of them: see
[resume and reshard](../how-to/resume-and-reshard.md).
[Run from a file](../how-to/run-from-a-file.md) shows how to use them.
`)
	section := ""
	for _, row := range rows {
		key, _, ok := strings.Cut(strings.TrimPrefix(row, "| `"), ".")
		if ok && key != section {
			section = key
			fmt.Fprintf(&b, "\n## %s\n\n%s", section, head)
		}
		b.WriteString(row)
	}
	return b.String()
}

// measuring are the commands with a page of their own.
var measuring = []string{"bench", "plan", "scale", "tune"}

// cliPage returns the help of the commands in measuring, or of the others.
func cliPage(t *testing.T, measure bool) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Command line\n\nThe help of `symgrad` and its commands; [bench, plan, scale and tune](cli-measure.md) have a page of their own.\n")
	if measure {
		b.Reset()
		b.WriteString("# Command line: measure\n\nThe help of the commands that measure and predict. [The others](cli.md) have another page.\n")
	}
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			return
		}
		words := append(strings.Fields(c.CommandPath())[1:], "--help")
		if (!c.HasSubCommands() || !c.HasParent()) && slices.Contains(measuring, c.Name()) == measure { // the help of a group is a list
			fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", c.CommandPath(), strings.TrimSpace(symgrad(t, words...)))
		}
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	add(newRootCommand())
	return b.String()
}

// errorsPage returns a table of the sentinel errors of each public package.
func errorsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Errors

Errors that a program compares with ` + "`errors.Is`" + `. A program that starts as a rank ends with
` + "`os.Exit(launch.ExitCode(err))`" + `, so that its launcher knows a failed rank from its victims.
[Failure](../explanation/failure.md) explains when they happen.
`)
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if base := d.Name(); name != root && (base == "internal" || base == "examples" || base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		rows, err := sentinels(name)
		if err == nil && len(rows) > 0 {
			folder, _ := filepath.Rel(root, name)
			fmt.Fprintf(&b, "\n## %s\n\n| error | meaning |\n|---|---|\n%s", filepath.ToSlash(folder), strings.Join(rows, ""))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sentinels returns a row for each exported variable Err... of the package in folder.
func sentinels(folder string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 || files[0].Name.Name == "main" {
		return nil, nil
	}
	pkg, err := doc.NewFromFiles(fset, files, path.Join("symgrad", filepath.ToSlash(folder)))
	if err != nil {
		return nil, err
	}
	var rows []string
	vars := slices.Clone(pkg.Vars)
	for _, t := range pkg.Types {
		vars = append(vars, t.Vars...)
	}
	for _, v := range vars {
		for _, s := range v.Decl.Specs {
			s := s.(*ast.ValueSpec)
			text := s.Doc.Text()
			if text == "" && len(v.Decl.Specs) == 1 {
				text = v.Doc
			}
			for _, n := range s.Names {
				if strings.HasPrefix(n.Name, "Err") {
					meaning := strings.TrimPrefix(strings.Join(strings.Fields(text), " "), n.Name+" is ")
					rows = append(rows, fmt.Sprintf("| `%s.%s` | %s |\n", pkg.Name, n.Name, strings.ReplaceAll(meaning, "|", "\\|")))
				}
			}
		}
	}
	return rows, nil
}
