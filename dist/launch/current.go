package launch

import "os"

// Environ returns the environment of this process, where library searches find folders.
func Environ() []string { return os.Environ() }

// Current identifies this process from its environment.
//
// Errors: those of Detect.
func Current() (Env, error) { return Detect(os.Environ()) }
