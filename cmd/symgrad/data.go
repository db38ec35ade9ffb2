package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/foreign"
)

// newDataCommand returns symgrad data, which makes and shows files of tokens.
func newDataCommand() *cobra.Command {
	return newGroup("data", "Make and show files of tokens", newDataShowCommand(), newDataTokenizeCommand())
}

// tokenizing are the flags of symgrad data tokenize.
type tokenizing struct {
	encoding, out, name string
	shard               int
}

func newDataTokenizeCommand() *cobra.Command {
	var f tokenizing
	cmd := &cobra.Command{
		Use:   "tokenize [flags] --out DIR FILE...",
		Short: "Encode texts as tokens",
		Long: `Encode texts as tokens, in files that package data and llm.c read.

Each FILE is a text in UTF-8, which may be larger than memory. Each text begins with the
token <|endoftext|>. Files have a header and tokens of 2 bytes, or of 4 bytes if the
encoding has more than 65,536 tokens. r50k_base is the encoding of GPT-2. After an error
no file stays.`,
		Example: `  symgrad data tokenize --out tokens/train book-1.txt book-2.txt
  symgrad data tokenize --encoding cl100k_base --out tokens/val --name val held-out.txt`,
		Args: usageArgs(someFiles),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usageError{errors.New("--out is missing: the folder for the tokens")}
			}
			enc, err := bpe.Open(f.encoding)
			if err != nil {
				return usageError{err}
			}
			return f.run(cmd, enc, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.encoding, "encoding", "r50k_base", "one of "+strings.Join(bpe.Names(), ", "))
	flags.StringVar(&f.out, "out", "", "folder for the tokens")
	flags.StringVar(&f.name, "name", "tokens", "start of the files' names")
	flags.IntVar(&f.shard, "shard-tokens", 0, "tokens of a file (default 100 million)")
	return cmd
}

// run encodes the files, and prints a line for each.
func (f tokenizing) run(cmd *cobra.Command, enc *bpe.Encoding, files []string) (err error) {
	format := data.TokensHeaderUint16
	if enc.Vocabulary() > 1<<16 {
		format = data.TokensHeaderUint32
	}
	w, err := data.NewTokenWriter(data.TokenWriterConfig{Dir: f.out, Name: f.name, Format: format, ShardTokens: f.shard})
	if errors.Is(err, dist.ErrInvalid) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	for _, path := range files {
		n, size, err := encodeFile(w, enc, path)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", path, err), w.Abandon())
		}
		line := fmt.Sprintf("%s: %d bytes, %d tokens\n", path, size, n)
		if err := write(cmd.OutOrStdout(), []byte(line)); err != nil {
			return errors.Join(err, w.Abandon())
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return write(cmd.OutOrStdout(), []byte(strings.Join(w.Paths(), "\n")+"\n"))
}

// encodeFile appends a text to w, with <|endoftext|> before it.
//
// Returns: the tokens written, and the bytes of the text.
func encodeFile(w *data.TokenWriter, enc *bpe.Encoding, path string) (n int, size int64, err error) {
	in, err := foreign.Open(path)
	if err != nil {
		var of *os.PathError
		if errors.As(err, &of) {
			err = of.Err // the caller names the file
		}
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err == nil {
		err = w.Write([]int{enc.EndOfText()})
	}
	if err != nil {
		return 0, 0, err
	}
	n = 1
	err = enc.EncodeAll(in, func(tokens []int) error {
		n += len(tokens)
		return w.Write(tokens)
	})
	return n, info.Size(), err
}

func newDataShowCommand() *cobra.Command {
	var encoding string
	cmd := &cobra.Command{
		Use:   "show [flags] PATH...",
		Short: "Print the contents of files of tokens",
		Long: `Print the format and the number of tokens of each file, and the sum. A PATH that is a
folder means all its files *.bin. With --encoding all tokens are read and compared with the
vocabulary, and the start of the text is printed.`,
		Example: `  symgrad data show tokens/train
  symgrad data show --encoding r50k_base tokens/train/tokens_000000.bin`,
		Args: usageArgs(someFiles),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := showTokens(args, encoding)
			return errors.Join(write(cmd.OutOrStdout(), []byte(text)), err)
		},
	}
	cmd.Flags().StringVar(&encoding, "encoding", "", "read all tokens, which are of this encoding: one of "+strings.Join(bpe.Names(), ", "))
	return cmd
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

// someFiles requires one argument or more.
func someFiles(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name one file or more")
	}
	return nil
}
