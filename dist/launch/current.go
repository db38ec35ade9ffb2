package launch

import "os"

// Environ is the environment of this process, in which searches for libraries find folders.
func Environ() []string { return os.Environ() }

// Current is who this process is, from its environment.
//
// Errors: those of Detect.
func Current() (Env, error) { return Detect(os.Environ()) }
