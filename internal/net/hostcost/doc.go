// Package hostcost predicts the time of collectives between hosts, and chooses the algorithm of an
// allreduce by its size and the number of hosts.
//
//	net := hostcost.Net{Hosts: 16, Ranks: 8, Latency: 10e-6, Bandwidth: 12.5e9}
//	choice := hostcost.Choose(net, 1<<20, true)
//	fmt.Println(choice.Algorithm, choice.Seconds)
//
// # Model
//
// A message of b bytes between two hosts takes Latency + b/Bandwidth. Overhead is the part of
// Latency in which the processor of an end is busy. A link moves one message at a time in each
// direction, and the network between the links has no limit. Ranks of a host add and copy in
// parallel, each at Memory. The time in which ranks of one host wait for each other, about 1 us, is
// not counted.
//
// The formulas are those of Thakur, Rabenseifner and Gropp, Optimization of Collective
// Communication Operations in MPICH, 2005, with the overhead of LogGP (Alexandrov et al., LogGP:
// Incorporating Long Messages into the LogP Model, 1995). Package hostsim runs the same algorithms
// message by message, and tests hold the formulas against it.
//
// # Choice
//
// Choose looks in a table that package hostsim makes, by hosts, ranks of a host and size. Sizes in
// the table are in units of Latency x Bandwidth, so that one table serves all networks.
//
//	net.go      Net and its defaults, cost of the meeting of all ranks
//	formula.go  times of the algorithms of an allreduce and of the other collectives
//	choose.go   Choose; table.go has its table, which hostsim writes
package hostcost
