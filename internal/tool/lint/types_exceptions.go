package lint

// crowded lists the types over a limit, with today's sizes and the jobs that are still in one
// object. A number may only fall.
var crowded = map[string]crowd{
	"internal/conformance.suite": {
		methods: 81, files: 18,
		why: "a test of the contract is a method, and a file has the tests of one section of it; the fields are few",
	},
	"internal/gpu/cuda.Device": {
		methods: 54, files: 9,
		why: "a device makes streams, events, memory and modules, each in the file of its own type, and every call needs its context",
	},
	"internal/compile/cudaexec.Exec": {
		methods: 58, fields: 31, files: 11,
		why: "loading, running, staging, profiles and the tuning of products share the streams and the memory of one run",
	},
	"internal/compile/cudagen.generator": {
		methods: 83, files: 17,
		why: "it writes one source text; a file has the kernels of one kind of step; the fields are few",
	},
	"internal/gpu.Stream": {files: 7, why: "order, capture, launches and host work of a stream have a file each"},
	"internal/gpu.ledger": {files: 6, why: "agreement, failures and departures use one piece of shared memory"},
	"internal/net/hosts.Transport": {
		methods: 86, fields: 28, files: 20,
		why: "the algorithms between hosts, their waits, heaps, splits and losses are one object",
	},
	"internal/net/hosts.process": {
		fields: 24, files: 6,
		why: "one goroutine serves control messages, heaps and losses of all groups, under one lock",
	},
	"internal/gpu/nvshmem.engine": {
		methods: 58, files: 7,
		why: "a collective of the library has a call for each dtype, with rules of its own",
	},
}

// shortFiles lists files of fewer than 40 lines with methods of a type that lies elsewhere, with
// the reason.
var shortFiles = map[string]string{}
