// Package hosttest makes several hosts of one machine, for tests. A host is a process with a
// network, a UTS, an IPC, a mount and a PID namespace of its own. A bridge joins the hosts. Tests
// run programs on them, cut links, drop packets, and kill or stop whole hosts.
//
// It needs Linux, root, and the commands ip and tc of iproute2; Loss needs nft of nftables. Without
// them a test is skipped with the reason. It fails instead if DIST_REQUIRE names hosts.
//
// # The bridge
//
// The bridge is in the network namespace of one thread of the test process, so the network of the
// machine never changes. The kernel deletes the bridge with the thread, also after SIGKILL.
//
// # The processes of a host
//
// The test binary runs again as process 1 of each host: see init. The kernel kills process 1 when
// the test process ends, and kills all other processes of the host with it. No name of a host or
// its links exists outside its namespaces, so two sets of hosts never meet.
//
// # The files of a host
//
// A host sees the files of the machine, except /tmp and /dev/shm, which are its own. The folder of
// the test binary, its working directory and the folders in Options.Share have their usual paths.
// The names of the hosts are in /etc/hosts.
//
// # Commands
//
// A command on a host is started by a second role of the test binary, enter, because only a new
// process can join a PID namespace. Launchers of MPI start their daemons with a third role, agent,
// which needs no ssh. It connects to a server on the other host, so a cut link cuts it as well.
package hosttest
