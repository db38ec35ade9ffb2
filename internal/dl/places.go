package dl

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Places is where libraries lie that the loader does not look for by itself: the toolkits that
// environment variables name, the site-packages of the Python that runs here (wheels keep CUDA's
// libraries in nvidia/*/lib), and the usual folders of installers. The value is for Search.Dirs:
// patterns, the most deliberate choice first, without duplicates.
//
// Shapes/units: root is the file system from "/" on, for the links of python3; environ is as from
// os.Environ, and package dl reads none itself.
func Places(root fs.FS, environ []string) []string {
	env := variables(environ)
	var dirs []string
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", NCCL.Home, NVSHMEM.Home, "CUDNN_HOME", "MKLROOT", "MPI_HOME"} {
		dirs = append(dirs, homeDirs(env[name])...)
	}
	for _, p := range folders(env["PYTHONPATH"]) {
		dirs = append(dirs, p+"/nvidia/*/lib")
	}
	for _, prefix := range pythonPrefixes(root, env) {
		dirs = append(dirs, prefix+"/lib/python3*/site-packages/nvidia/*/lib", prefix+"/lib")
	}
	if home := env["HOME"]; path.IsAbs(home) {
		dirs = append(dirs, home+"/.local/lib/python3*/site-packages/nvidia/*/lib")
	}
	dirs = append(dirs,
		"/usr/local/lib/python3*/*-packages/nvidia/*/lib", // Debian says dist-packages
		"/usr/lib/python3*/*-packages/nvidia/*/lib",
		"/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
		"/opt/*/lib/python3*/site-packages/nvidia/*/lib",
		"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/opt/cuda/lib64",
		"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib", // drivers that containers, WSL and NixOS mount
		"/usr/lib/x86_64-linux-gnu/nvshmem/*", // NVIDIA's packages for Debian
		"/opt/intel/oneapi/mkl/latest/lib",
		"/usr/lib/x86_64-linux-gnu/openmpi/lib", "/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib", "/opt/openmpi/lib", "/opt/mpich/lib",
	)
	for i, d := range dirs {
		dirs[i] = path.Clean(d)
	}
	return unique(dirs)
}

// Product is a library for which a variable of its own can name an installation. Who sets it has
// chosen, whatever the loader would find.
type Product struct {
	Home    string   // the variable
	Sonames []string // the best first
}

// The products that programs here choose so.
var (
	NCCL    = Product{"NCCL_HOME", []string{"libnccl.so.2", "libnccl.so"}}
	NVSHMEM = Product{"NVSHMEM_HOME", []string{"libnvshmem_host.so.3"}}
)

// AtHome is the file of p in the installation that its variable names, for Search.Override: the
// first of its Sonames that is there; "" where there is none.
//
// Shapes/units: root and environ as for Places.
func (p Product) AtHome(root fs.FS, environ []string) string {
	home := variables(environ)[p.Home]
	for _, soname := range p.Sonames {
		for _, dir := range homeDirs(home) {
			file := path.Join(dir, soname)
			if _, err := fs.Stat(root, inRoot(file)); err == nil {
				return file
			}
		}
	}
	return ""
}

// homeDirs is the folders of an installation in which libraries lie.
func homeDirs(home string) []string {
	if !path.IsAbs(home) {
		return nil
	}
	return []string{home + "/lib64", home + "/lib", home + "/targets/x86_64-linux/lib"}
}

// LoaderDirs is where the loader looks for a soname: LD_LIBRARY_PATH, the folders of
// /etc/ld.so.conf, and those that are built in (ld.so(8)). It serves to list every file that there
// is; which one a soname means is for the loader to say, through Open.
//
// Shapes/units: as for Places.
func LoaderDirs(root fs.FS, environ []string) []string {
	dirs := folders(variables(environ)["LD_LIBRARY_PATH"])
	dirs = append(dirs, loaderConfig(root, "/etc/ld.so.conf", 0)...)
	dirs = append(dirs, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	return unique(dirs)
}

// maxIncludes bounds how deep files of loaderConfig include each other, in case one includes
// itself.
const maxIncludes = 4

// loaderConfig is the folders that a file in the format of ld.so.conf names: one a line, "include
// PATTERN", comments after "#".
func loaderConfig(root fs.FS, file string, depth int) []string {
	text, err := fs.ReadFile(root, inRoot(file))
	if err != nil || depth > maxIncludes {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 1 && path.IsAbs(words[0]):
			dirs = append(dirs, path.Clean(words[0]))
		case len(words) == 2 && words[0] == "include":
			pattern := words[1]
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(file), pattern)
			}
			files, _ := fs.Glob(root, inRoot(pattern)) // a malformed pattern includes nothing
			for _, f := range files {
				dirs = append(dirs, loaderConfig(root, "/"+f, depth+1)...)
			}
		}
	}
	return dirs
}

// pythonPrefixes is the installations that python3 may be run from: the active environment, and
// those of every python3 on the PATH, which is often a link into one.
func pythonPrefixes(root fs.FS, env map[string]string) []string {
	var prefixes []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if p := env[name]; path.IsAbs(p) {
			prefixes = append(prefixes, p)
		}
	}
	for _, dir := range folders(env["PATH"]) {
		file := path.Join(dir, "python3")
		for range maxLinks {
			info, err := fs.Lstat(root, inRoot(file))
			if err != nil {
				break
			}
			prefixes = append(prefixes, path.Dir(path.Dir(file)))
			if info.Mode()&fs.ModeSymlink == 0 {
				break
			}
			target, err := fs.ReadLink(root, inRoot(file))
			if err != nil {
				break
			}
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(file), target)
			}
			file = path.Clean(target)
		}
	}
	// These are in the list anyway, at its end: a toolkit that somebody installed comes before the
	// system's own.
	return slices.DeleteFunc(prefixes, func(p string) bool { return p == "/" || p == "/usr" || p == "/usr/local" })
}

// variables is environ as a map; the last of several values counts.
func variables(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, s := range environ {
		if name, value, ok := strings.Cut(s, "="); ok {
			env[name] = value
		}
	}
	return env
}

// folders is the absolute folders of a value like that of PATH.
func folders(value string) []string {
	var dirs []string
	for _, d := range strings.Split(value, ":") {
		if path.IsAbs(d) {
			dirs = append(dirs, path.Clean(d))
		}
	}
	return dirs
}

// unique is list without what it had before.
func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		was := seen[s]
		seen[s] = true
		return was
	})
}

// inRoot is an absolute path as a file system from "/" wants it.
func inRoot(p string) string {
	p = strings.TrimPrefix(path.Clean(p), "/")
	if p == "" {
		return "."
	}
	return p
}
