// Package faults has tests of failures on several hosts, and no other code. Hosts are made of
// namespaces by package hosttest. A job of four ranks on two of them is brought into a phase: idle,
// an allreduce, the meeting, a checkpoint. Then a fault happens: a rank or a host is killed, a link
// is cut, a host stops, packets are lost.
//
//	main_linux_test.go    roles of the test binary: the tests, a launcher, a rank
//	rank_linux_test.go    a rank, which obeys a test over a socket
//	stage_linux_test.go   a test's end of that socket, and the launchers
//	faults_linux_test.go  the table of faults, and the right outcome of each
//	record_linux_test.go  versions, for records of runs in bench/results
//	guests_linux_test.go  a host that is not part of the job
package faults
