package hosts

import (
	"encoding/binary"
	"fmt"
)

// control is a message about a group, or about processes.
type control struct {
	group uint32
	kind  controlKind
	rank  int // the sender, in the group; in the world for controlDied and controlBeat
	a, b  uint64
	text  string
}

type controlKind uint8

const (
	controlLeave    controlKind = iota + 1 // the sender closes its end after exchange a and b messages
	controlHint                            // the sender waits for a message
	controlAbort                           // the sender broke the group, after exchange a
	controlMismatch                        // the sender found a mismatch, after exchange a
	controlTimeout                         // the sender waited too long, after exchange a
	controlDied                            // rank of the world is gone
	controlBeat                            // the sender is alive
	controlNote                            // text is a note for the program: see Transport.Notify
)

// controlBytes is the most bytes of a control message. Longer texts are cut.
const controlBytes = 1 << 10

const controlHead = 4 + 1 + 4 + 8 + 8

// appendTo returns to followed by c.
func (c *control) appendTo(to []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, c.group)
	to = append(to, byte(c.kind))
	to = binary.LittleEndian.AppendUint32(to, uint32(c.rank))
	to = binary.LittleEndian.AppendUint64(to, c.a)
	to = binary.LittleEndian.AppendUint64(to, c.b)
	return append(to, c.text[:min(len(c.text), controlBytes-controlHead)]...)
}

// parseControl is the inverse of appendTo.
func parseControl(b []byte) (control, error) {
	if len(b) < controlHead || len(b) > controlBytes {
		return control{}, fmt.Errorf("control message of %d bytes", len(b))
	}
	c := control{
		group: binary.LittleEndian.Uint32(b), kind: controlKind(b[4]), rank: int(int32(binary.LittleEndian.Uint32(b[5:]))),
		a: binary.LittleEndian.Uint64(b[9:]), b: binary.LittleEndian.Uint64(b[17:]), text: string(b[controlHead:]),
	}
	if c.kind < controlLeave || c.kind > controlNote {
		return control{}, fmt.Errorf("control message of kind %d", c.kind)
	}
	return c, nil
}
