package ucx

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/symgrad/symgrad/internal/net/wire"
)

// BenchmarkPingPong measures half a round trip between two processes over TCP on loopback. The
// other process answers until this one closes its wire.
func BenchmarkPingPong(b *testing.B) {
	needUCX(b)
	store := b.TempDir()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestAnswerOfPingPong$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=1 2 %s", roleVariable, store))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	}()
	w, err := Open(b.Context(), 0, 2, folder(store), Config{Interface: "lo", Transports: "tcp,self"})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for _, size := range []int{8, 1 << 10, 64 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			buf := make([]byte, size)
			var out, in wire.Request
			best := time.Hour
			for b.Loop() {
				start := time.Now()
				w.Recv(&in, 1, 1, buf)
				w.Send(&out, 1, 1, buf)
				if err := wire.Wait(w, nil, &out, &in); err != nil {
					b.Fatal(err)
				}
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "us/half")
			b.ReportMetric(float64(best.Nanoseconds())/2000, "min-us/half")
		})
	}
}

// TestAnswerOfPingPong is the other process of BenchmarkPingPong.
func TestAnswerOfPingPong(t *testing.T) {
	role := os.Getenv(roleVariable)
	if role == "" {
		t.Skip("it is a part of BenchmarkPingPong")
	}
	runRank(t, role, Config{}, func(w *Wire) error {
		buf := make([]byte, 8<<20)
		for {
			var out, in wire.Request
			w.Recv(&in, 0, 1, buf)
			if err := wire.Wait(w, nil, &in); err != nil {
				if isLost(err, 0, leftText) {
					return nil
				}
				return err
			}
			_, n, _ := in.Result()
			w.Send(&out, 0, 1, buf[:n])
			if err := wire.Wait(w, nil, &out); err != nil {
				return err
			}
		}
	})
}
