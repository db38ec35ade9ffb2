package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/symgrad/symgrad/data"
	"github.com/symgrad/symgrad/data/bpe"
	"github.com/symgrad/symgrad/dist"
)

// newDataCommand returns symgrad data, which makes files of tokens and shows data sets.
func newDataCommand() *cobra.Command {
	return newGroup("data", "Make files of tokens and show data sets", newDataShowCommand(), newDataTokenizeCommand())
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

Each FILE is a text in UTF-8, which may be larger than memory; - is standard input. Each
text begins with the token <|endoftext|>. Files have a header and tokens of 2 bytes, or of
4 bytes if the encoding has more than 65,536 tokens. r50k_base is the encoding of GPT-2.
After an error, Ctrl-C or SIGTERM no file stays. A terminal shows the progress.`,
		Example: `  symgrad data tokenize --out tokens/train book-1.txt book-2.txt
  zstdcat books.zst | symgrad data tokenize --out tokens/train -
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
	ctx, release := untilSignal(cmd.Context())
	defer release()
	e := &textEncoder{ctx: ctx, tokens: w, enc: enc, shown: newProgressLine(cmd.ErrOrStderr())}
	for _, path := range files {
		n, size, err := e.encode(cmd, path)
		e.shown.clear()
		if err == nil {
			err = write(cmd.OutOrStdout(), []byte(fmt.Sprintf("%s: %d bytes, %d tokens\n", path, size, n)))
		}
		if stop := (&stoppedBySignal{}); errors.As(err, &stop) {
			err = &exitError{128 + int(stop.sig), fmt.Errorf("%w: no file of tokens stays", stop)}
		}
		if err != nil {
			return errors.Join(err, w.Abandon())
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return write(cmd.OutOrStdout(), []byte(strings.Join(w.Paths(), "\n")+"\n"))
}

// stdin is the argument that means standard input.
const stdin = "-"

// someFiles requires one argument or more, and standard input once at most.
func someFiles(_ *cobra.Command, args []string) error {
	inputs := 0
	for _, a := range args {
		if a == stdin {
			inputs++
		}
	}
	switch {
	case len(args) == 0:
		return errors.New("name one file or more")
	case inputs > 1:
		return errors.New("standard input (-) is there twice: it is read once")
	}
	return nil
}
