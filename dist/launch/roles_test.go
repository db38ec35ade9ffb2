package launch

// roles are the programs that this test binary can be. They return the exit code.
var roles = map[string]func(args []string) int{
	"ancestor": ancestor,
}
