package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/data/bpe"
)

// The kinds of data sets of symgrad data show.
const (
	kindAuto   = "auto"
	kindTokens = "tokens"
	kindIDX    = "idx"
	kindCIFAR  = "cifar"
	kindImages = "images"
)

// showing are the flags of symgrad data show.
type showing struct {
	kind, encoding string
	check          bool
}

func newDataShowCommand() *cobra.Command {
	var f showing
	kinds := []string{kindAuto, kindTokens, kindIDX, kindCIFAR, kindImages}
	cmd := &cobra.Command{
		Use:   "show [flags] PATH...",
		Short: "Print the contents of data sets",
		Long: `Print the format and the number of samples of data sets: files of tokens, idx files
(MNIST), folders of the binary version of CIFAR-10 or CIFAR-100, and folders of images with
a folder for each class.

Tokens: a PATH that is a folder means all its files *.bin. With --encoding all tokens are
read and compared with the vocabulary, and the start of the text is printed. Images: with
--check all files are decoded, and each damaged one is printed. idx and CIFAR files are
always checked.`,
		Example: `  symgrad data show tokens/train
  symgrad data show --encoding r50k_base tokens/train/tokens_000000.bin
  symgrad data show --check imagenet/train`,
		Args: usageArgs(someFiles),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(kinds, f.kind) {
				return usageError{fmt.Errorf("--kind: unknown kind %q: use one of %s", f.kind, strings.Join(kinds, ", "))}
			}
			text, err := f.show(args)
			return errors.Join(write(cmd.OutOrStdout(), []byte(text)), err)
		},
	}
	cmd.Flags().StringVar(&f.kind, "kind", kindAuto, "one of "+strings.Join(kinds, ", ")+"; auto looks at names and contents")
	cmd.Flags().StringVar(&f.encoding, "encoding", "", "read all tokens, which are of this encoding: one of "+strings.Join(bpe.Names(), ", "))
	cmd.Flags().BoolVar(&f.check, "check", false, "decode all images of a folder")
	return cmd
}

// show returns the text of the command, also with an error. Files of tokens are one text.
func (f showing) show(paths []string) (string, error) {
	var text strings.Builder
	var tokens []string
	for _, path := range paths {
		kind := f.kind
		if kind == kindAuto {
			kind = kindOfData(path)
		}
		if kind == kindTokens {
			tokens = append(tokens, path)
			continue
		}
		part, err := map[string]func(string) (string, error){kindIDX: showIDX, kindCIFAR: showCIFAR, kindImages: f.showImages}[kind](path)
		text.WriteString(part)
		if err != nil {
			return text.String(), err
		}
	}
	if tokens == nil {
		return text.String(), nil
	}
	part, err := showTokens(tokens, f.encoding)
	return text.String() + part, err
}

// kindOfData returns the kind of the data at a path. It is kindTokens if nothing else fits.
func kindOfData(path string) string {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	entries, err := os.ReadDir(path)
	switch {
	case err != nil && filepath.Ext(path) != ".bin" && isIDX(path):
		return kindIDX
	case err != nil:
		return kindTokens
	case exists("data_batch_1.bin"), exists("test_batch.bin"), exists("fine_label_names.txt"):
		return kindCIFAR
	case slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".bin") }):
		return kindTokens
	case slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() && isIDX(filepath.Join(path, e.Name())) }):
		return kindIDX
	case slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.IsDir() && !strings.HasPrefix(e.Name(), ".") }):
		return kindImages
	}
	return kindTokens
}

// isIDX reports whether a file is an idx file by its name, as idx files have no unique beginning.
func isIDX(path string) bool {
	name := strings.TrimSuffix(filepath.Base(path), ".gz")
	return strings.HasSuffix(name, "-ubyte") || strings.HasSuffix(name, ".idx") || strings.Contains(name, "-idx")
}

// showIDX returns a line for an idx file, or for each of a folder.
func showIDX(path string) (string, error) {
	files := []string{path}
	if entries, err := os.ReadDir(path); err == nil {
		files = nil
		for _, e := range entries {
			if file := filepath.Join(path, e.Name()); !e.IsDir() && isIDX(file) {
				files = append(files, file)
			}
		}
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, file := range files {
		x, err := data.ReadIDX(file, 0)
		if err != nil {
			err = errors.Join(table.Flush(), err)
			return out.String(), err
		}
		sizes := fmt.Sprint(x.Dims[0])
		for _, d := range x.Dims[1:] {
			sizes += fmt.Sprint("x", d)
		}
		fmt.Fprintf(table, "%s\tidx\t%s bytes\tfrom %d to %d\n", x.Path, sizes, slices.Min(x.Data), slices.Max(x.Data))
	}
	err := table.Flush()
	return out.String(), err
}

// showCIFAR returns the number of images of each class, for training and for the test.
func showCIFAR(path string) (string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	has := func(test bool) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			if test {
				return e.Name() == "test_batch.bin" || e.Name() == "test.bin"
			}
			return strings.HasPrefix(e.Name(), "data_batch_") || e.Name() == "train.bin"
		})
	}
	var out strings.Builder
	for _, test := range []bool{false, true} {
		if !has(test) && has(!test) {
			continue // one of the two is enough
		}
		m, err := data.OpenCIFAR(data.CIFARConfig{Dir: path, Test: test})
		if err != nil {
			return out.String(), err
		}
		counts := make([]int, len(m.Classes()))
		for i := range m.Len() {
			label, err := m.Label(i)
			if err != nil {
				return out.String(), errors.Join(err, m.Close())
			}
			counts[label]++
		}
		name := map[bool]string{false: "training", true: "test"}[test]
		fmt.Fprintf(&out, "%s: CIFAR-%d, %d %s images of 32x32\n", path, len(counts), m.Len(), name)
		writeClasses(&out, m.Classes(), counts)
		if err := m.Close(); err != nil {
			return out.String(), err
		}
	}
	return out.String(), nil
}

// writeClasses writes a line for each class, with its number of images.
func writeClasses(out *strings.Builder, classes []string, counts []int) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, name := range classes {
		fmt.Fprintf(table, "  %d\t%s\t%d\n", i, name, counts[i])
	}
	_ = table.Flush() // a strings.Builder has no errors
}

// showImages returns the number of images of each class of a folder, and the damaged ones with
// --check.
func (f showing) showImages(path string) (string, error) {
	// The smallest part of each image, as only the decoding matters.
	m, err := data.OpenImageFolder(data.FolderConfig{Dir: path, Transform: data.Transform{Height: 1, Width: 1, Crop: data.CropCenter}})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	counts := make([]int, len(m.Classes()))
	for i := range m.Len() {
		counts[m.Label(i)]++
	}
	fmt.Fprintf(&out, "%s: %d images in %d classes\n", path, m.Len(), len(counts))
	writeClasses(&out, m.Classes(), counts)
	if !f.check {
		return out.String(), nil
	}
	damaged, err := decodeAll(m, &out)
	if err == nil && damaged > 0 {
		err = fmt.Errorf("%s: %d of %d images are damaged", path, damaged, m.Len())
	} else if err == nil {
		fmt.Fprintf(&out, "all %d images can be decoded\n", m.Len())
	}
	return out.String(), err
}

// decodeAll reads all samples, on all processors, and writes a line for each that cannot be read.
func decodeAll(ds data.Dataset, out *strings.Builder) (damaged int, err error) {
	order, err := data.NewSampler(data.SamplerConfig{Samples: ds.Len(), GlobalBatch: 1})
	if err != nil {
		return 0, err
	}
	l, err := data.NewLoader(data.LoaderConfig{Dataset: ds, Order: order, Ahead: 64})
	if err != nil {
		return 0, err
	}
	for range ds.Len() {
		if _, err := l.Next(); err != nil {
			damaged++
			fmt.Fprintln(out, errorOfSample(err))
		}
	}
	return damaged, l.Close()
}

// errorOfSample returns the text of an error of a loader without the batch, which has one sample
// here.
func errorOfSample(err error) string {
	_, text, _ := strings.Cut(err.Error(), "sample ")
	_, text, _ = strings.Cut(text, ": ")
	return text
}

// showTokens returns the text of symgrad data show, also with an error in the tokens.
func showTokens(paths []string, encoding string) (text string, err error) {
	c := data.TokensConfig{Paths: paths}
	var enc *bpe.Encoding
	if encoding != "" {
		if enc, err = bpe.Open(encoding); err != nil {
			return "", usageError{err}
		}
		c.Vocabulary = enc.Vocabulary()
	}
	tokens, err := data.OpenTokens(c)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tokens.Close()) }()
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, s := range tokens.Shards() {
		fmt.Fprintf(table, "%s\t%v\t%d tokens\n", s.Path, s.Format, s.Tokens)
	}
	fmt.Fprintf(table, "all\t\t%d tokens\n", tokens.Len())
	if err := table.Flush(); err != nil || enc == nil {
		return out.String(), err
	}
	for _, s := range tokens.Shards() {
		if s.Format != data.TokensHeaderUint32 && enc.Vocabulary() > 1<<16 {
			return out.String(), fmt.Errorf("%s: tokens of 2 bytes are not of %s, which has %d", s.Path, encoding, enc.Vocabulary())
		}
	}
	largest, err := largestToken(tokens)
	if err != nil {
		return out.String(), err
	}
	start := make([]int32, min(tokens.Len(), 64))
	if err := tokens.Read(0, start); err != nil {
		return out.String(), err
	}
	ids := make([]int, len(start))
	for i, token := range start {
		ids[i] = int(token)
	}
	fmt.Fprintf(&out, "largest token: %d of %d\n", largest, enc.Vocabulary())
	shown, err := enc.Decode(ids)
	if err == nil {
		fmt.Fprintf(&out, "start: %q\n", shown)
	}
	return out.String(), err
}

// largestToken reads all tokens.
func largestToken(t *data.Tokens) (largest int32, err error) {
	part := make([]int32, 1<<16)
	for at := 0; at < t.Len(); at += len(part) {
		part = part[:min(len(part), t.Len()-at)]
		if err := t.Read(at, part); err != nil {
			return 0, err
		}
		for _, token := range part {
			largest = max(largest, token)
		}
	}
	return largest, nil
}
