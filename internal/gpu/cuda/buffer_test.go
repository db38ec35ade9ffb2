package cuda

import (
	"bytes"
	"errors"
	"testing"

	"github.com/symgrad/symgrad/tensor"
)

// Memory of the host, of another device, or too short is refused before the driver sees it.
func TestBuffersOfOthersAreRefused(t *testing.T) {
	v := &Device{index: 1}
	host := tensor.Of(make([]byte, 8))
	other, err := tensor.FromPointer(host.Pointer(), 8, tensor.U8, tensor.CUDA(0))
	if err != nil {
		t.Fatal(err)
	}
	own, err := tensor.FromPointer(host.Pointer(), 8, tensor.U8, tensor.CUDA(1))
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"host":    v.WriteBuffer(host, []byte{1}),
		"other":   v.ReadBuffer([]byte{1}, other),
		"freed":   v.FreeBuffer(other),
		"longer":  v.WriteBuffer(own, make([]byte, 9)),
		"too far": v.ReadBuffer(make([]byte, 9), own),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(v.WriteBuffer(own, nil), v.ReadBuffer(nil, own)); err != nil || !bytes.Equal(host.Raw(), make([]byte, 8)) {
		t.Errorf("nothing to move: %v", err)
	}
}
