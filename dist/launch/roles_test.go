//go:build linux

package launch

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/internal/host/cores"
)

// roles are the programs that this test binary can be. They return the exit code.
var roles = map[string]func(args []string) int{
	"ancestor": ancestor,
	"puppet":   playPuppet,
	"launcher": playLauncher,
	"node":     playNode,
	"nohup":    playNohup,
	"self":     playSelf,
	"shell":    playShell,
}

// playLauncher spawns as many puppets as its argument says, like symgrad run does.
func playLauncher(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return fail(err)
	}
	exe, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	res, err := Spawn(context.Background(), SpawnConfig{Program: exe, N: n, Env: append(os.Environ(), roleVar+"=puppet")})
	if err != nil && res.Code == 0 {
		return fail(err)
	}
	return res.Code
}

// playNode is the launcher of one node. Its arguments are a SpawnConfig as JSON and the secret.
func playNode(args []string) int {
	cfg, err := nodeConfig(args)
	if err != nil {
		return fail(err)
	}
	res, err := Spawn(context.Background(), cfg)
	if err != nil && res.Code == 0 {
		return fail(err)
	}
	return res.Code
}

// playShell is playNode with a shell as the program.
func playShell(args []string) int {
	cfg, err := nodeConfig(args)
	if err != nil {
		return fail(err)
	}
	cfg.Program = "sh"
	res, err := Spawn(context.Background(), cfg)
	if err != nil && res.Code == 0 {
		return fail(err)
	}
	return res.Code
}

func nodeConfig(args []string) (cfg SpawnConfig, err error) {
	if err = json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return cfg, err
	}
	if cfg.Secret, err = ParseSecret([]byte(args[1])); err != nil {
		return cfg, err
	}
	cfg.Program, err = os.Executable()
	cfg.Env = append(os.Environ(), roleVar+"=puppet")
	return cfg, err
}

// playNohup is a launcher started by nohup(1).
func playNohup(args []string) int {
	signal.Ignore(syscall.SIGHUP)
	return playLauncher(args)
}

// playSelf is a program that spawns itself when it is started plainly.
func playSelf([]string) int {
	e, err := Current()
	if err != nil {
		return fail(err)
	}
	res, spawned, err := Self(context.Background(), e, SpawnConfig{N: 2})
	if err != nil {
		return fail(err)
	}
	if spawned {
		return res.Code
	}
	return playPuppet(nil)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// puppet is a rank that follows the test's commands, over the stage's socket.
type puppet struct {
	conn  net.Conn
	r     *bufio.Reader
	store dist.Store
	close io.Closer
}

func playPuppet([]string) int {
	e, err := Current()
	if err != nil {
		return fail(err)
	}
	conn, err := net.Dial("unix", os.Getenv(stageVar))
	if err != nil {
		return fail(err)
	}
	p := &puppet{conn: conn, r: bufio.NewReader(conn)}
	p.say(fmt.Sprintf("%s rank %d pid %d", os.Getenv(nameVar), e.Rank, os.Getpid()))
	for {
		line, err := p.r.ReadString('\n')
		if err != nil {
			return 99 // the test has ended
		}
		command, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch command {
		case "exit":
			code, err := strconv.Atoi(arg)
			if err != nil {
				return fail(err)
			}
			return code
		case "get":
			_, err := p.store.Get(context.Background(), "never")
			fmt.Fprintln(os.Stderr, err)
			return ExitCode(err)
		default:
			p.say(p.obey(command, arg, e))
		}
	}
}

func (p *puppet) say(s string) { fmt.Fprintf(p.conn, "%q\n", s) }

// obey runs a command that has an answer.
func (p *puppet) obey(command, arg string, e Env) string {
	var err error
	switch command {
	case "whoami":
		type fields Env // without String
		e.marks = ""    // random
		return fmt.Sprintf("%+v", fields(e))
	case "getenv":
		return os.Getenv(arg)
	case "args":
		return fmt.Sprintf("%q", os.Args[1:])
	case "stdin":
		in, err := io.ReadAll(os.Stdin)
		return fmt.Sprintf("%q %v", in, err)
	case "handover":
		data, err := e.Handover()
		return fmt.Sprintf("%v %d %x %v", data == nil, len(data), sha256.Sum256(data), err)
	case "cores":
		processors, err := cores.Allowed()
		return fmt.Sprint(e.Bound, processors, err)
	case "word":
		var text string
		if text, err = strconv.Unquote(arg); err == nil {
			e.LastWord(os.Stderr, text)
		}
	case "getwd":
		dir, err := os.Getwd()
		return fmt.Sprint(dir, err)
	case "meet":
		p.store, p.close, err = Rendezvous(context.Background(), e, Config{Timeout: time.Minute})
	case "leave":
		err = p.close.Close()
	case "deaf":
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	case "polite":
		exitOnSignal()
	case "out", "err":
		var text string
		if text, err = strconv.Unquote(arg); err == nil {
			_, err = fmt.Fprint(map[string]io.Writer{"out": os.Stdout, "err": os.Stderr}[command], text)
		}
	case "child":
		err = startGrandchild(arg)
	case "lost":
		_, err = p.store.Get(context.Background(), "never")
	case "step", "succeed":
		err = mark(e, arg)
	case "kill":
		err = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	default:
		err = fmt.Errorf("no command %q", command)
	}
	return fmt.Sprint(err)
}

// mark marks a step, or success for "".
func mark(e Env, step string) error {
	m := OpenMarks(e)
	if step == "" {
		return errors.Join(m.Succeed(), m.Close())
	}
	n, err := strconv.Atoi(step)
	if err == nil {
		err = m.Begin(n)
	}
	return errors.Join(err, m.Close())
}

// exitOnSignal makes this process end with code 0 and a word on SIGINT or SIGTERM.
func exitOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		fmt.Println("ended by", <-signals)
		os.Exit(0)
	}()
}

// startGrandchild starts another puppet without waiting for it: "group" stays in the process group,
// "session" leaves it, and "hidden" also drops the environment.
func startGrandchild(kind string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), nameVar+"="+kind)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // it holds the pipes open
	if kind == "hidden" {
		cmd.Env = []string{nameVar + "=" + kind, roleVar + "=puppet", stageVar + "=" + os.Getenv(stageVar)}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: kind != "group"}
	return cmd.Start()
}
