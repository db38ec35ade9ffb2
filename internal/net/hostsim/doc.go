// Package hostsim runs the allreduces of package hostcost on a network with virtual time, message
// by message. It shows how they scale to thousands of hosts, and the effect of slow, late and lost
// hosts. It also writes the table of hostcost.Choose.
//
//	res, err := hostsim.Run(hostcost.Chain, hostsim.Config{Net: net, Bytes: 1 << 20})
//	fmt.Println(res.Seconds, res.Sent)
//
// # Model
//
// Each host has a processor for its leader, and a link with one direction in and one out. They do
// one thing at a time, in the order of requests. A message takes
//
//	the sender's processor   Overhead
//	its link, outward        bytes / Bandwidth
//	the network              Latency - 2 Overhead, any number of messages at a time
//	the receiver's link      bytes / Bandwidth, from the arrival of the first byte
//	its processor            Overhead, when the program takes the message
//
// This is the model LogGP with links that are shared by all messages of a host. The network does
// not lose messages, and the memory for messages that wait is not limited.
//
// A schedule is a list of operations for each actor: send, take, work. Payloads are not bytes but
// sets of contributions, so that a run shows that each rank ends with the input of every rank
// exactly once, and whether the sum is in rank order. Runs are deterministic.
//
//	engine.go    events, processors, links
//	schedule.go  operations, and the schedules of algorithms with leaders
//	ring.go      schedules of rings
//	value.go     contributions
//	run.go       Run
//	beats.go     heartbeats: the time until a lost host is named
//	table.go     the table of hostcost.Choose
package hostsim
