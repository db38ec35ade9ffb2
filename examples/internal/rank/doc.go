// Package rank has the common part of the small example programs: it reads the command line, starts
// the ranks or is one of them, and ends with the right exit code.
//
//	func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }
//
//	func execute(args []string, stdout, stderr io.Writer) int {
//		s := settings{rounds: 1000}
//		p := rank.Program{Name: "ring", Ranks: 4, Flags: s.flags, Check: s.check, Run: s.run}
//		return p.Execute(args, stdout, stderr)
//	}
//
// Every program has the flags --ranks (-n), --backend and --timeout. Started plainly it starts its
// ranks: processes, or goroutines of one process with --backend sim. Started by symgrad run,
// mpirun, srun or torchrun it is one of theirs.
//
// Exit codes: 0 when the result is right, 1 when it is wrong or could not be computed, 2 for a
// command line that makes no sense, 75 (launch.ExitPeerLost) for a rank that lost another one. A
// program that started its ranks ends with their code: that of the first that failed, or 141 when
// the reader of the output is gone (| head).
package rank
