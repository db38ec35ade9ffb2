package backend

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/symgrad/symgrad/dist/launch"
	"github.com/symgrad/symgrad/internal/dl"
	"github.com/symgrad/symgrad/internal/gpu/cuda"
)

// Choice is a backend, or one of its engines, and whether a job can use it.
type Choice struct {
	Name   string
	Usable bool
	Why    string // the reason, either way
}

// noMPI returns why MPI cannot join the ranks of env.
func noMPI(env launch.Env) string {
	if env.Launcher == launch.Slurm || env.Launcher == launch.PMIx {
		return "srun started this process, and MPI is for ranks of mpirun and mpiexec: use backend ucx, or mpirun inside the allocation"
	}
	return "no launcher of MPI started this process: use mpirun or mpiexec"
}

const simWhy = "ranks would be goroutines; it is taken only when asked for"

// nvshmemApart is the reason to refuse NVSHMEM on several hosts. Its transports between hosts are
// RDMA: it has none for TCP.
const nvshmemApart = "NVSHMEM joins hosts by RDMA transports only, which are not supported here: use backend cuda or nccl, where NCCL joins hosts"

// severalHosts returns why a job on several hosts cannot use a backend of one host.
func severalHosts(name string, env launch.Env) string {
	where := fmt.Sprintf("%d of %d ranks are on this host", env.LocalSize, env.Size)
	if env.Host != "" {
		where = fmt.Sprintf("SYMGRAD_HOST=%s names a host of its own", env.Host)
	}
	if name == NVSHMEM {
		return where + ", and " + nvshmemApart
	}
	return where + ", and shared memory needs all"
}

// Choices returns all backends for the job of env: the one that Auto tries first, then those
// between GPUs. It loads no library. For GPUs it only looks for files of devices and libraries;
// other errors appear when a world is opened, or in symgrad doctor.
func Choices(env launch.Env) []Choice { return Config{}.Choices(env) }

// Choices is package Choices with the paths of libraries that c sets.
func (c Config) Choices(env launch.Env) []Choice {
	return c.choices(env, place{os.DirFS("/"), launch.Environ()})
}

func (c Config) choices(env launch.Env, at place) []Choice {
	host := Choice{Name: SHM, Usable: true, Why: "all ranks are on this host"}
	if !env.OneHost() {
		host.Usable, host.Why = false, severalHosts(SHM, env)
	}
	between := Choice{Name: MPI, Why: noMPI(env)}
	if byMPI(env) {
		between.Usable, between.Why = true, "shared memory inside a host, MPI between hosts; taken when ranks are on several"
	}
	all := []Choice{host, between, at.ucx(env)}
	missing := at.noGPU(env)
	for _, name := range []string{CUDA, NCCL, NVSHMEM} {
		g := Choice{Name: name, Why: missing}
		switch {
		case !env.OneHost() && name == NVSHMEM:
			g.Why = severalHosts(name, env)
		case missing == "" && !env.OneHost() && !byMPI(env) && !at.ucx(env).Usable:
			g.Why = at.ucx(env).Why
		case missing == "":
			g.Why, g.Usable = c.libraries(name, at)
		}
		all = append(all, g)
	}
	return append(all, Choice{Name: Sim, Why: simWhy})
}

// ucx is the choice of UCX, which needs a store to meet.
func (at place) ucx(env launch.Env) Choice {
	if at.find("UCX", "", "libucp.so.0") == "" {
		return Choice{Name: UCX, Why: "no libucp.so.0: install package libucx0 (Debian, Ubuntu) or ucx (Fedora)"}
	}
	if err := env.CheckMeeting(); err != nil && !env.OneHost() {
		return Choice{Name: UCX, Why: err.Error()}
	}
	return Choice{Name: UCX, Usable: true, Why: "shared memory inside a host, UCX between hosts; taken when ranks are on several without mpirun"}
}

// place is a machine, seen through its files and an environment.
type place struct {
	root    fs.FS
	environ []string
}

// noGPU returns why the ranks of env would not have a GPU each, or "".
func (at place) noGPU(env launch.Env) string {
	files, _ := fs.Glob(at.root, "dev/nvidia[0-9]*") // the pattern is well-formed
	count := len(files)
	visible := launch.FindVisible(at.environ)
	_, err := fs.Stat(at.root, "dev/dxg") // WSL has one file for all
	switch {
	case count == 0 && err != nil:
		return "no GPU here: there is no /dev/nvidia0"
	case visible.Hidden():
		return fmt.Sprintf("no GPU shown: %v", visible)
	case count == 0: // the number is known only to the driver
	case len(visible.Names) == 1 || count == 1 && env.LocalSize == 1: // perhaps each rank sees another one
	case len(visible.Names) > 0 && len(visible.Names) < env.LocalSize:
		return fmt.Sprintf("%d ranks on this host for %d GPUs (%v): each rank needs one of its own", env.LocalSize, len(visible.Names), visible)
	case count < env.LocalSize:
		return fmt.Sprintf("%d ranks on this host for %d GPUs: each rank needs one of its own", env.LocalSize, count)
	}
	return ""
}

// libraries reports on the files of the libraries that backend name needs.
func (c Config) libraries(name string, at place) (why string, usable bool) {
	c = c.atHome(at.root, at.environ)
	if at.find("libcuda", c.CUDADriver, "libcuda.so.1") == "" {
		return "the driver's library is missing: no libcuda.so.1; in a container the host's must be mounted", false
	}
	var there, missing []string
	for _, w := range []struct{ backend, name, library, file string }{
		{CUDA, "own kernels", "NVRTC", at.find("NVRTC", c.NVRTC, "libnvrtc.so.13", "libnvrtc.so.12")},
		{NCCL, "NCCL", "NCCL", at.find("NCCL", c.NCCL, dl.NCCL.Sonames...)},
		{NVSHMEM, "NVSHMEM", "NVSHMEM", at.find("NVSHMEM", c.NVSHMEM, dl.NVSHMEM.Sonames...)},
	} {
		switch {
		case name != CUDA && w.backend != name:
		case w.file == "":
			missing = append(missing, "no "+w.library+" is found")
		default:
			there = append(there, fmt.Sprintf("%s (%s)", w.name, w.file))
		}
	}
	if len(there) == 0 {
		return strings.Join(missing, ", "), false
	}
	text := "between GPUs by " + strings.Join(there, ", ")
	if len(missing) > 0 {
		text += "; " + strings.Join(missing, ", ")
	}
	if name == CUDA {
		return text + "; taken when it, or device cuda, is asked for", true
	}
	return text + "; taken when it is asked for", true
}

// atHome returns c with libraries from installations that NCCL_HOME and NVSHMEM_HOME name, unless c
// sets them.
func (c Config) atHome(root fs.FS, environ []string) Config {
	c.NCCL = cmp.Or(c.NCCL, dl.NCCL.AtHome(root, environ))
	c.NVSHMEM = cmp.Or(c.NVSHMEM, dl.NVSHMEM.AtHome(root, environ))
	return c
}

// find returns the file of a library: the override, or the first with one of its sonames, or "".
func (at place) find(name, override string, sonames ...string) string {
	s := dl.Search{Name: name, Override: override, Sonames: sonames, Dirs: dl.Places(at.root, at.environ)}
	files, err := s.Find(at.root, dl.LoaderDirs(at.root, at.environ))
	if err != nil || len(files) == 0 {
		return ""
	}
	return files[0].Path
}

// factsOf returns this rank's facts.
func (c Config) factsOf(d *cuda.Driver, ids []gpuID, own int) facts {
	return facts{
		Backend: c.Name(), Engine: c.Engine, MaxCTAs: c.MaxCTAs, GPU: ids[own], Count: len(ids), Driver: d.Version(),
		Visible: launch.CurrentVisible().String(),
	}
}
