package hosttest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runInit is process 1 of a host. Its argument is the spec. It prepares the host, starts the server
// for agents, answers with ready or an error, and then starts programs until it is killed.
func runInit(args []string) (int, error) {
	// No program of the host can end it. Ignored signals would stay ignored in programs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	l, err := prepare(args[0])
	if err != nil {
		fmt.Println(err)
		return 1, nil
	}
	cs := &children{waiting: map[int]chan syscall.WaitStatus{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go cs.reap(ended)
	fmt.Print(ready)
	return 1, cs.accept(l)
}

// prepare returns the listener of startSocket.
func prepare(text string) (*net.UnixListener, error) {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return nil, fmt.Errorf("sethostname: %w", err)
	}
	if err := mounts(s); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // the link exists
		return nil, fmt.Errorf("test process: %w", err)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = lines("link set lo up", fmt.Sprintf("link set eth0 address %s mtu %d up", s.MAC, s.MTU), "addr add "+s.Addr+" dev eth0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ip: %w: %s", err, out)
	}
	if err := startServer(); err != nil {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: startSocket, Net: "unix"})
}

// own are the file systems of each host, with their kinds.
var (
	own   = []string{"/proc", "/sys", "/dev/shm", ownTmp}
	kinds = []string{"proc", "sysfs", "tmpfs", "tmpfs"}
)

// mounts gives the host files of its own.
func mounts(s spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	folders, err := hidden(s.Visible)
	if err != nil {
		return err
	}
	for i, path := range own {
		if err := unix.Mount(kinds[i], path, kinds[i], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	for _, f := range folders {
		if err := os.MkdirAll(f.Name(), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), f.Name(), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("share %s: %w", f.Name(), err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nameFiles(s)
}

// cgroups is the folder of the machine's control groups: programs read their limits there.
const cgroups = "/sys/fs/cgroup"

// hidden opens the folders that the host's own /tmp, /dev/shm and /sys are about to hide.
func hidden(folders []string) (open []*os.File, err error) {
	if _, err := os.Stat(cgroups); err == nil {
		folders = append(folders, cgroups)
	}
	for _, folder := range folders {
		if folder = filepath.Clean(folder); !slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(folder, o+"/") }) {
			continue
		}
		f, err := os.Open(folder)
		if err != nil {
			return nil, err
		}
		open = append(open, f)
	}
	return open, nil
}

// nameFiles writes /etc/hosts and the agent.
func nameFiles(s spec) error {
	names := ownTmp + "/.hosttest-names"
	if err := os.WriteFile(names, []byte(s.Names), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(names, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc/hosts: %w", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	return os.Symlink(binary, agentPath)
}
