package hosttest

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// agentPort is the port of the server for agents: that of rsh, which no test uses.
const agentPort = "514"

// lost is the exit code of an agent that has no connection, as that of ssh.
const lost = 255

// message is a part of the conversation of an agent and a server. The agent sends Words first, and
// then the standard input as Data. The server sends output as Data, and Exit last.
type message struct {
	Words  string // for a shell
	Data   []byte
	Stderr bool // Data is standard error, not standard output
	Ended  bool
	Exit   int
}

// stream is a writer that sends its bytes as messages.
type stream struct {
	lock   *sync.Mutex // of out
	out    *gob.Encoder
	stderr bool
}

// Write sends b as one message.
func (s stream) Write(b []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if err := s.out.Encode(message{Data: b, Stderr: s.stderr}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// startServer starts the server of a host, which accepts agents when startServer returns.
func startServer() error {
	l, err := net.Listen("tcp", ":"+agentPort)
	if err != nil {
		return err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return errors.New("the listener is not TCP")
	}
	f, err := tcp.File()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{roleServer}
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = "/", os.Stderr, []*os.File{f}
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp")
	return errors.Join(cmd.Start(), f.Close(), l.Close())
}

// runServer runs commands for agents. It is not process 1, so that Stop stops it too.
func runServer([]string) (int, error) {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return 1, err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return 1, err
		}
		go serve(c)
	}
}

// serve runs one command. An agent that is gone ends its input, as with ssh without a terminal.
func serve(c net.Conn) {
	defer c.Close()
	in, out, lock := gob.NewDecoder(c), gob.NewEncoder(c), new(sync.Mutex)
	var first message
	if in.Decode(&first) != nil {
		return
	}
	cmd := exec.Command("sh", "-c", first.Words)
	cmd.Stdout, cmd.Stderr = stream{lock, out, false}, stream{lock, out, true}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	last := message{Ended: true, Exit: cannotStart}
	if stdin, err := cmd.StdinPipe(); err == nil && cmd.Start() == nil {
		go func() {
			defer stdin.Close()
			copyData(in, stdin, stdin)
		}()
		_ = cmd.Wait() // its error is the exit code
		last.Exit = exitCode(cmd.ProcessState)
	}
	lock.Lock()
	defer lock.Unlock()
	_ = out.Encode(last) // the agent may be gone
}

// exitCode returns the exit code of a process as a shell does: 128 + the signal that ended it.
func exitCode(state *os.ProcessState) int {
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return state.ExitCode()
}

// copyData writes the data of messages until the last one or an error, and returns the last one.
func copyData(in *gob.Decoder, stdout, stderr io.Writer) (message, error) {
	for {
		var m message
		if err := in.Decode(&m); err != nil || m.Ended {
			return m, err
		}
		to := stdout
		if m.Stderr {
			to = stderr
		}
		if _, err := to.Write(m.Data); err != nil {
			return m, err
		}
	}
}

// runAgent runs a command line on another host. Its arguments are options, which it ignores, the
// name of the host, and the words of the command line.
func runAgent(args []string) (int, error) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		args = args[1:]
	}
	if len(args) < 2 {
		return lost, errors.New("use: " + roleAgent + " HOST WORDS")
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(args[0], agentPort), 20*time.Second)
	if err != nil {
		return lost, err
	}
	defer c.Close()
	in, out := gob.NewDecoder(c), gob.NewEncoder(c)
	if err := out.Encode(message{Words: strings.Join(args[1:], " ")}); err != nil {
		return lost, err
	}
	go func() {
		if _, err := io.Copy(stream{new(sync.Mutex), out, false}, os.Stdin); err == nil {
			_ = out.Encode(message{Ended: true})
		}
	}()
	last, err := copyData(in, os.Stdout, os.Stderr)
	if err != nil {
		return lost, fmt.Errorf("%s: %w", args[0], err)
	}
	return last.Exit, nil
}
