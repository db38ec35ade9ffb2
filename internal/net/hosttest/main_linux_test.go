package hosttest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guard ends programs of a test that hangs.
const guard = time.Minute

// helpers are the programs that tests run on hosts: the test binary with the name of one.
var helpers = map[string]func(args []string) error{
	"echo": echo, "talk": talk, "count": count, "send": send, "sink": sink, "flood": flood,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if f := helpers[os.Args[1]]; f != nil {
			if err := f(os.Args[2:]); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// echo is a TCP server that sends each line back. It prints each line that it gets.
func echo([]string) error {
	l, err := net.Listen("tcp", ":7")
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			for s := bufio.NewScanner(c); s.Scan(); {
				fmt.Println(s.Text())
				fmt.Fprintln(c, s.Text())
			}
		}()
	}
}

// talk connects with the echo of a host, sends each line of its input and prints the answers.
func talk(args []string) error {
	timeout, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", args[0]+":7", timeout)
	if err != nil {
		return err
	}
	fmt.Println("connected")
	var lock sync.Mutex // so that "sent" is before the answer
	print := func(send io.Writer, line, answer string) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprint(send, line)
		fmt.Println(answer)
	}
	go func() {
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			print(c, s.Text()+"\n", "sent")
		}
	}()
	s := bufio.NewScanner(c)
	for s.Scan() {
		print(io.Discard, "", s.Text())
	}
	return s.Err()
}

// roomForAll makes the buffer of a socket large enough for 900 datagrams, each of at most 1 KiB in
// the kernel. Only the root of the machine may exceed its limit.
func roomForAll(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var err1 error
	err = raw.Control(func(fd uintptr) {
		err1 = os.NewSyscallError("setsockopt SO_RCVBUFFORCE", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20))
	})
	return errors.Join(err, err1)
}

// last is the datagram that ends count.
const last = "last"

// count is a UDP receiver. It prints the number of datagrams before the last.
func count([]string) error {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 9})
	if err != nil {
		return err
	}
	if err := roomForAll(c); err != nil {
		return err
	}
	fmt.Println("listening")
	buf := make([]byte, 16)
	for n := 0; ; n++ {
		size, err := c.Read(buf)
		if err != nil {
			return err
		}
		if string(buf[:size]) == last {
			fmt.Println(n)
			n = -1
		}
	}
}

// send sends as many datagrams to the count of a host as each line of its input says. The line 0
// sends the last one.
func send(args []string) error {
	c, err := net.Dial("udp4", args[0]+":9")
	if err != nil {
		return err
	}
	fmt.Println("connected")
	for s := bufio.NewScanner(os.Stdin); s.Scan(); fmt.Println("sent") {
		n, err := strconv.Atoi(s.Text())
		if err != nil {
			return err
		}
		text := "one"
		if n == 0 {
			n, text = 1, last
		}
		for range n {
			if _, err := io.WriteString(c, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// sink is a TCP server that answers the end of each connection's input with one byte.
func sink([]string) error {
	l, err := net.Listen("tcp", ":7")
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			return err
		}
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
}

// flood sends bytes to the sink of a host, and prints the nanoseconds until the answer.
func flood(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", args[0]+":7")
	if err != nil {
		return err
	}
	start := time.Now()
	if _, err := c.Write(make([]byte, n)); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return err
	}
	fmt.Println(time.Since(start).Nanoseconds())
	return nil
}

// program is a running command whose lines a test writes and reads.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts a command. The end of the test kills it.
func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(guard, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		late.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &program{t, cmd, in, bufio.NewScanner(out)}
}

// helper starts a helper on a host and waits for its first line.
func helper(t *testing.T, h *Hosts, host int, name string, args ...string) *program {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, h.Command(host, own, append([]string{name}, args...)...))
	if first := p.read(); first != "listening" && first != "connected" {
		t.Fatalf("%s: %s", name, first)
	}
	return p
}

// write writes a line to the program.
func (p *program) write(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatal(err)
	}
}

// read returns the next line of the program.
func (p *program) read() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("%s ended: %v", strings.Join(p.cmd.Args, " "), p.out.Err())
	}
	return p.out.Text()
}

// expect fails unless the next lines of the program are these.
func (p *program) expect(want ...string) {
	p.t.Helper()
	for _, w := range want {
		if got := p.read(); got != w {
			p.t.Fatalf("line %q, want %q", got, w)
		}
	}
}
