package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of TensorBoard's messages. Source: tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto.
const (
	eventTime    = 1 // double
	eventStep    = 2 // int64
	eventVersion = 3 // string
	eventSummary = 5 // Summary
	summaryValue = 1 // Value, repeated
	valueTag     = 1 // string
	valueScalar  = 2 // float
)

// eventVersionText is the first event of a file.
const eventVersionText = "brain.Event:2"

// eventsEnd ends the names of the files that this package writes, and therefore may remove.
const eventsEnd = ".symgrad"

// events is an event file of TensorBoard: records of a length, an Event, and checksums of both.
// Source: tensorflow/core/lib/io/record_writer.h.
type events struct {
	file    *os.File
	buf     []byte // records that are not flushed
	event   []byte // reused
	summary []byte
	value   []byte
}

// newEvents makes a file in dir with the records that the run continues, instead of the files that
// earlier processes of the run wrote.
func newEvents(dir string, now time.Time, h *History) (*events, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	earlier, err := filepath.Glob(filepath.Join(escape(dir), "events.out.tfevents.*"+eventsEnd))
	if err != nil {
		return nil, err
	}
	for _, path := range earlier {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d%s", now.Unix(), host, os.Getpid(), eventsEnd)
	e := &events{}
	if e.file, err = os.Create(filepath.Join(dir, name)); err != nil {
		return nil, err
	}
	at := float64(now.UnixMilli()) / 1e3
	e.record(protowire.AppendString(protowire.AppendTag(e.head(at), eventVersion, protowire.BytesType), eventVersionText))
	for _, name := range h.names {
		s := h.series[name]
		for i, r := range s.at {
			e.add(h.Steps[r], h.times[r], []pair{{name, s.y[i]}})
		}
	}
	return e, e.flush()
}

// escape returns a path as a pattern that matches only itself.
func escape(path string) string {
	var b []byte
	for _, c := range []byte(path) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(b)
}

// head returns the start of an event: its time.
func (e *events) head(at float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(e.event[:0], eventTime, protowire.Fixed64Type), math.Float64bits(at))
}

// add appends an event with the metrics of a record.
func (e *events) add(step int, at float64, pairs []pair) {
	e.summary = e.summary[:0]
	for _, p := range pairs {
		v := protowire.AppendString(protowire.AppendTag(e.value[:0], valueTag, protowire.BytesType), p.name)
		e.value = protowire.AppendFixed32(protowire.AppendTag(v, valueScalar, protowire.Fixed32Type), math.Float32bits(float32(p.value)))
		e.summary = protowire.AppendBytes(protowire.AppendTag(e.summary, summaryValue, protowire.BytesType), e.value)
	}
	b := protowire.AppendVarint(protowire.AppendTag(e.head(at), eventStep, protowire.VarintType), uint64(step))
	e.record(protowire.AppendBytes(protowire.AppendTag(b, eventSummary, protowire.BytesType), e.summary))
}

// record appends an event with its length and the checksums of both.
func (e *events) record(event []byte) {
	e.event = event
	from := len(e.buf)
	e.buf = binary.LittleEndian.AppendUint64(e.buf, uint64(len(event)))
	e.buf = binary.LittleEndian.AppendUint32(e.buf, masked(e.buf[from:]))
	e.buf = append(e.buf, event...)
	e.buf = binary.LittleEndian.AppendUint32(e.buf, masked(event))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of b as record files have it: CRC-32C, rotated, plus a constant.
// Source: tensorflow/core/lib/hash/crc32c.h.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func (e *events) flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	_, err := e.file.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}

func (e *events) close() error { return e.file.Close() }
