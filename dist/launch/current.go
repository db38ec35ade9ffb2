package launch

import "os"

// Current is who this process is, from its environment.
//
// Errors: those of Detect.
func Current() (Env, error) { return Detect(os.Environ()) }
