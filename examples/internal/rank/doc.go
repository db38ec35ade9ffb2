// Package rank is the common part of the small example programs: reading the command line, starting
// the ranks or being one of them, and ending with the right exit code.
//
//	func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }
//
//	func execute(args []string, stdout, stderr io.Writer) int {
//		s := settings{rounds: 1000}
//		p := rank.Program{Name: "ring", Ranks: 4, Flags: s.flags, Check: s.check, Run: s.run}
//		return p.Execute(args, stdout, stderr)
//	}
//
// Every program has the flags --ranks (-n), --backend and --timeout. Without a launcher it starts
// its ranks itself: as processes, or with --backend sim as goroutines of one process. Under symgrad
// run, mpirun, srun or torchrun it is one of their ranks.
//
// Exit codes: 0 the result is right, 1 the result is wrong or could not be computed, 2 an invalid
// command line, 75 (launch.ExitPeerLost) another rank was lost. A program that started its ranks
// returns the code of the first one that failed, or 141 if the reader of the output ended (| head).
package rank
