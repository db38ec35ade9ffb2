// Package ranktest runs example programs in tests: in this process with simulated ranks, as
// processes, with ranks that a test starts as a launcher would, and with a rank that is killed. It
// also runs the function of a rank on worlds of every backend.
//
// A test binary becomes the program if Main finds a variable in its environment:
//
//	func TestMain(m *testing.M) { ranktest.Main(m, main) }
package ranktest
