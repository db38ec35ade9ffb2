// Command p2p sends messages from one rank to another through symmetric memory, as the last lab of
// NVIDIA's tutorial. It uses a put with a signal, for which only the receiver waits, so several
// messages can be in flight. For comparison, it also uses a put and a barrier per message.
//
//	go run ./examples/p2p
//	go run ./examples/p2p -n 4 --bytes 4096 --messages 10000 --slots 8
//	symgrad run -n 2 -- bin/p2p
//
// prints something like
//
//	p2p: 2 ranks on shm, rank 0 to rank 1 and so on; 1000 messages of 65536 B, 4 slots
//	put-signal   every byte arrived;     2.47 us a message,   26.6 GB/s
//	put+barrier  every byte arrived;     9.77 us a message,   6.71 GB/s
//
// Each method runs twice. The first run sends distinct messages, and the receiver compares every
// byte. The second run is timed: it sends one message repeatedly, and the receiver reads every byte
// and compares the sum.
//
// The receiver has a few slots, each with a signal: the number of the newest message in it. It
// acknowledges each message with a signal of its own, so that the sender knows which slots are
// free. Only these two ranks take part, and the data is never copied twice.
//
//	main.go     the command line, and the function of a rank
//	send.go     the two methods
//	pipe.go     the symmetric memory of a sender and its receiver
//	payload.go  the content of a message
//
// Source: NVIDIA, "GPU Communication Libraries for Accelerating HPC and AI Applications", HOT
// Interconnects 2025, lab 6.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/examples/internal/rank"
	"github.com/symgrad/symgrad/symmetric"
)

const about = `Send messages between pairs of ranks, 0 to 1, 2 to 3 and so on, by put with a signal.`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program with this command line.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	var s settings
	return rank.Program{Name: "p2p", About: about, Ranks: 2, Flags: s.flags, Check: s.check, Run: s.run}.Execute(args, stdout, stderr)
}

// settings is the command line.
type settings struct {
	bytes    int64 // of a message
	messages int
	slots    int // messages in flight
}

func (s *settings) flags(f *pflag.FlagSet) {
	f.Int64Var(&s.bytes, "bytes", 64<<10, "size of a message, a multiple of 8")
	f.IntVar(&s.messages, "messages", 1000, "number of messages per sender")
	f.IntVar(&s.slots, "slots", 4, "maximum number of messages in flight")
}

func (s *settings) check(ranks int, _ []string) error {
	switch {
	case ranks%2 != 0:
		return fmt.Errorf("%d ranks: want an even number, because every sender has a receiver", ranks)
	case s.bytes < wordBytes || s.bytes > 1<<30 || s.bytes%wordBytes != 0:
		return fmt.Errorf("--bytes %d: want a multiple of %d, at most 1 GiB", s.bytes, wordBytes)
	case s.messages < 1:
		return fmt.Errorf("--messages %d: want 1 or more", s.messages)
	case s.slots < 2 || s.slots > 1<<10:
		return fmt.Errorf("--slots %d: want 2 to %d", s.slots, 1<<10)
	}
	return nil
}

// run is one rank.
func (s *settings) run(ctx context.Context, w *dist.World, out io.Writer) error {
	heap, err := w.Heap(s.heapBytes())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "p2p: %d ranks on %s, rank 0 to rank 1 and so on; %d messages of %d B, %d slots\n",
		w.Size(), w.Backend(), s.messages, s.bytes, s.slots)
	for _, way := range []way{{"put-signal", putSignal}, {"put+barrier", putBarrier}} {
		if _, err := s.transfer(ctx, w, heap, way, true); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		took, err := s.transfer(ctx, w, heap, way, false)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		each := took.Seconds() / float64(s.messages)
		fmt.Fprintf(out, "%-11s  every byte arrived; %8.3g us a message, %6.3g GB/s\n", way.name, each*1e6, float64(s.bytes)/each/1e9)
	}
	return nil
}

// way is one method to send all messages. bad is the number of words that arrived wrong at this
// rank.
type way struct {
	name string
	send func(ctx context.Context, p *pipe) (bad int, err error)
}

// transfer sends all messages, distinct ones or the same one repeatedly. It fails on every rank if
// a word arrived wrong on any.
//
// Collective: all ranks. Returns: the time from a barrier before the first message to one after the
// last.
func (s *settings) transfer(ctx context.Context, w *dist.World, heap symmetric.Heap, way way, distinct bool) (time.Duration, error) {
	p, err := newPipe(w, heap, *s, distinct)
	if err != nil {
		return 0, err
	}
	if err := rank.Done(w.Barrier()); err != nil {
		return 0, err
	}
	begin := time.Now()
	bad, err := way.send(ctx, p)
	if err != nil {
		return 0, err
	}
	if err := rank.Done(w.Barrier()); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if err := rank.Verdict(w, "words that arrived wrong", bad); err != nil {
		return 0, err
	}
	return took, p.free()
}
