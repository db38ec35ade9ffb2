// Package ranktest runs example programs in tests: in this process with simulated ranks, as
// processes, with ranks that a launcher of one's own starts, and with a rank that is killed; and it
// runs the function of a rank on worlds of every backend.
//
// A test binary becomes the program when Main finds a variable in its environment:
//
//	func TestMain(m *testing.M) { ranktest.Main(m, main) }
package ranktest
