package launch

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/symgrad/symgrad/dist"
)

// A frame is, in big-endian order,
//
//	uint32 length of the rest, byte kind, uint32 id, uint16 length of key, key, value
//
// A request carries an id that the client chooses, and its reply the same id. Requests of one
// connection may be answered in any order, because a Get waits.
type frame struct {
	kind  byte
	id    uint32
	key   string
	value []byte
}

// Requests, client to server.
const (
	opHello   byte = iota + 1 // first frame: key helloKey, value the encoded hello; joins the job
	opSet                     // stores value under key
	opGet                     // waits for the value under key
	opAdd                     // value: int64 delta
	opMeet                    // waits until all ranks have joined
	opMissing                 // asks which ranks have not joined; reply: uint32 each
	opCancel                  // stops waiting for the reply to id; has no reply
	opGoodbye                 // id goodbyeID: leaves the meeting; the last request
	opPing                    // of a launcher: shows that it lives; reply: nothing
	opReport                  // of a launcher: value: a report as JSON
)

// Replies, server to client.
const (
	replyOK      byte = iota + 64 // value: the result
	replyInvalid                  // value: text; the request is wrong
	replyTimeout                  // value: text; the ranks did not meet in time
	replyDied                     // value: uint32 rank, text
	replyRetry                    // value: text; to a hello: this meeting is over, try the next
	replyClosed                   // the server ends in good order; with id goodbyeID it is not a reply
	replyTaken                    // value: text; to a hello of a launcher: another one has this node
)

const (
	goodbyeID     = 0              // id of opGoodbye and of messages that the server sends without a request
	pingID        = math.MaxUint32 // id of opPing and its replies, for which no caller waits
	headBytes     = 4 + 1 + 4 + 2
	helloKey      = "symgrad-store/1" // other versions and other programs reject it
	maxFrameBytes = headBytes + MaxKeyBytes + MaxValueBytes
	maxHelloBytes = headBytes + 4<<10 // the most that an unknown peer can make the server read
)

// appendFrame appends the encoding of f to b.
func appendFrame(b []byte, f frame) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(headBytes-4+len(f.key)+len(f.value)))
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint32(b, f.id)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.key)))
	b = append(b, f.key...)
	return append(b, f.value...)
}

// readFrame reads one frame of at most limit bytes. Errors: io.EOF between frames,
// io.ErrUnexpectedEOF within one, dist.ErrInvalid for a malformed frame, r's.
func readFrame(r io.Reader, limit int) (frame, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	total := uint64(binary.BigEndian.Uint32(head[:])) + 4
	keyBytes := uint64(binary.BigEndian.Uint16(head[9:]))
	if total > uint64(limit) || total < headBytes+keyBytes || keyBytes > MaxKeyBytes {
		return frame{}, fmt.Errorf("malformed frame: %d B with a key of %d B, limit %d: %w", total, keyBytes, limit, dist.ErrInvalid)
	}
	body := make([]byte, total-headBytes)
	if _, err := io.ReadFull(r, body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return frame{kind: head[4], id: binary.BigEndian.Uint32(head[5:]), key: string(body[:keyBytes]), value: body[keyBytes:]}, nil
}

// hello identifies a client.
type hello struct {
	rank, size int
	job        string
}

func (h hello) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(h.rank))
	b = binary.BigEndian.AppendUint32(b, uint32(h.size))
	return append(b, h.job...)
}

func decodeHello(f frame) (hello, error) {
	if f.kind != opHello || f.key != helloKey || len(f.value) < 8 {
		return hello{}, fmt.Errorf("no hello of %s: %w", helloKey, dist.ErrInvalid)
	}
	return hello{
		rank: int(binary.BigEndian.Uint32(f.value)),
		size: int(binary.BigEndian.Uint32(f.value[4:])),
		job:  string(f.value[8:]),
	}, nil
}

// encodeRanks returns uint32 after uint32.
func encodeRanks(ranks []int) []byte {
	var b []byte
	for _, r := range ranks {
		b = binary.BigEndian.AppendUint32(b, uint32(r))
	}
	return b
}

func decodeRanks(b []byte) []int {
	var ranks []int
	for ; len(b) >= 4; b = b[4:] {
		ranks = append(ranks, int(binary.BigEndian.Uint32(b)))
	}
	return ranks
}
