package dl

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Places returns folders with libraries that the loader does not search by itself: toolkits named
// by environment variables, site-packages of Python (wheels keep CUDA's libraries in nvidia/*/lib),
// and the usual folders of installers. The result is for Search.Dirs: patterns without duplicates,
// explicit choices first.
//
// Shapes/units: root is the file system from "/" on, for the links of python3; environ is as from
// os.Environ, which package dl does not read itself.
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
		"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib", // drivers mounted by containers, WSL and NixOS
		"/usr/lib/x86_64-linux-gnu/nvshmem/*", // NVIDIA's packages for Debian
		"/opt/intel/oneapi/mkl/latest/lib",
		"/usr/lib/x86_64-linux-gnu/openmpi/lib", "/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib", "/opt/openmpi/lib", "/opt/mpich/lib",
	)
	for i, d := range dirs {
		dirs[i] = path.Clean(d)
	}
	return unique(dirs)
}

// Product is a library with an environment variable that names an installation. That choice takes
// precedence over the loader's.
type Product struct {
	Home    string   // the variable
	Sonames []string // the best first
}

// The products with such a variable.
var (
	NCCL    = Product{"NCCL_HOME", []string{"libnccl.so.2", "libnccl.so"}}
	NVSHMEM = Product{"NVSHMEM_HOME", []string{"libnvshmem_host.so.3"}}
)

// AtHome returns the first existing file of p's Sonames in the installation that its variable
// names, for Search.Override; "" if there is none.
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

// homeDirs returns the folders of an installation that may have libraries.
func homeDirs(home string) []string {
	if !path.IsAbs(home) {
		return nil
	}
	return []string{home + "/lib64", home + "/lib", home + "/targets/x86_64-linux/lib"}
}

// LoaderDirs returns the loader's folders for sonames: LD_LIBRARY_PATH, the folders of
// /etc/ld.so.conf, and the built-in ones (ld.so(8)). It is for listing files; only Open finds the
// file that the loader chooses.
//
// Shapes/units: as for Places.
func LoaderDirs(root fs.FS, environ []string) []string {
	dirs := folders(variables(environ)["LD_LIBRARY_PATH"])
	dirs = append(dirs, loaderConfig(root, "/etc/ld.so.conf", 0)...)
	dirs = append(dirs, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	return unique(dirs)
}

// maxIncludes limits the depth of includes in loaderConfig, in case a file includes itself.
const maxIncludes = 4

// loaderConfig returns the folders named in a file in the format of ld.so.conf: one per line,
// "include PATTERN", comments after "#".
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

// pythonPrefixes returns the possible installations of python3: the active environment, and those
// of every python3 on the PATH, which is often a link into one.
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
	// Places lists these at its end: an installed toolkit precedes the system's libraries.
	return slices.DeleteFunc(prefixes, func(p string) bool { return p == "/" || p == "/usr" || p == "/usr/local" })
}

// variables returns environ as a map; the last of several values counts.
func variables(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, s := range environ {
		if name, value, ok := strings.Cut(s, "="); ok {
			env[name] = value
		}
	}
	return env
}

// folders returns the absolute folders of a value in the format of PATH.
func folders(value string) []string {
	var dirs []string
	for _, d := range strings.Split(value, ":") {
		if path.IsAbs(d) {
			dirs = append(dirs, path.Clean(d))
		}
	}
	return dirs
}

// unique returns list without repeated elements.
func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		was := seen[s]
		seen[s] = true
		return was
	})
}

// inRoot returns an absolute path as an fs.FS for "/" expects it.
func inRoot(p string) string {
	p = strings.TrimPrefix(path.Clean(p), "/")
	if p == "" {
		return "."
	}
	return p
}
