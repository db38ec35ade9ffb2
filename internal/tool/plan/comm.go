package plan

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
	"github.com/symgrad/symgrad/tensor"
)

// Collective is one operation of a step, as the flight recorder records it on each rank.
type Collective struct {
	Name  string `json:"name"` // of the tensor or bucket
	Kind  string `json:"kind"`
	DType string `json:"dtype"`
	Count int64  `json:"count"` // elements of one rank's block
	Bytes int64  `json:"bytes"` // of a rank's larger buffer
	Sent  int64  `json:"sent"`  // least bytes that a rank sends: see Sent
}

// Volume is the sum over a list of collectives.
type Volume struct {
	Collectives int   `json:"collectives"`
	Bytes       int64 `json:"bytes"`
	Sent        int64 `json:"sent"`
}

// Sent returns the least number of bytes that each of n ranks sends in a collective. bytes (B) is
// the size of its larger buffer.
//
//	allreduce                  2 B (n-1)/n    send each element to be summed, send each sum
//	reducescatter, allgather     B (n-1)/n
//	alltoall                     B (n-1)/n    all parts except its own
//	broadcast                    B            the root, and all but the last rank of a chain
//
// A ring sends exactly this number. Fractions of a byte are rounded up.
//
// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
// 2009, theorem 1; NCCL tests, doc/PERFORMANCE.md, has the same factors for its bus bandwidth.
func Sent(kind dist.Kind, bytes int64, n int) int64 {
	if n < 2 {
		return 0
	}
	part := bytes * int64(n-1)
	switch kind {
	case dist.KindAllReduce:
		part *= 2
	case dist.KindBroadcast:
		return bytes
	case dist.KindReduceScatter, dist.KindAllGather, dist.KindAllToAll:
	default:
		return 0
	}
	return (part + int64(n) - 1) / int64(n)
}

// Sum returns the volume of collectives.
func Sum(all []Collective) Volume {
	var v Volume
	for _, c := range all {
		v.Collectives++
		v.Bytes += c.Bytes
		v.Sent += c.Sent
	}
	return v
}

// FromRecord converts an entry of a flight recorder to a Collective.
func FromRecord(r dist.Record, ranks int) Collective {
	return Collective{
		Name: r.Name, Kind: r.Signature.Kind.String(), DType: r.Signature.DType.String(), Count: r.Signature.Count,
		Bytes: r.Bytes, Sent: Sent(r.Signature.Kind, r.Bytes, ranks),
	}
}

// collective returns an operation with count elements a rank on n ranks.
func collective(name string, kind dist.Kind, dt tensor.DType, count, n int) Collective {
	bytes := int64(count) * int64(dt.Size())
	if kind == dist.KindReduceScatter || kind == dist.KindAllGather || kind == dist.KindAllToAll {
		bytes *= int64(n)
	}
	return Collective{Name: name, Kind: kind.String(), DType: dt.String(), Count: int64(count), Bytes: bytes, Sent: Sent(kind, bytes, n)}
}

func bucketName(i int) string { return fmt.Sprintf("bucket %d", i) }
