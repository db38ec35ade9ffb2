// Package ucx is a wire over UCX (libucp.so.0), opened at run time. It needs no launcher: processes
// exchange the addresses of their workers through a store.
//
// # Messages
//
// A message of the wire is a tagged message of UCX. The upper 32 bits of its tag are the sender's
// rank, the lower 32 the tag of the wire. Tags from 1<<31 belong to this package: a process that
// closes its wire says goodbye with one, and the others answer. Therefore OnLost does not report
// an orderly end.
//
// # Threads
//
// One lock guards each worker, whose thread mode is SERIALIZED. Requests have no callbacks:
// Progress asks for their status. Only the handler of failed endpoints enters Go from C. It adds a
// note, which Progress reads.
//
// # Memory
//
// The library reads and writes the caller's memory. A wire keeps a reference to it until the
// library has finished, also after a request that ended with a *wire.PeerError: a message that had
// begun to arrive may still be written then. Do not use the buffer of such a request again.
//
// UCX caches the registration of memory with network adapters. It does not see that the Go runtime
// returns pages to the system. On adapters with RDMA use memory outside of Go's heap. TCP does not
// register memory.
//
// # Faults
//
// UCX reports the end of a peer's process, and an endpoint's first use starts that watch. It does
// not report a cut link: the caller needs heartbeats, and calls Lose.
package ucx
