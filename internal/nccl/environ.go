package nccl

import (
	"fmt"
	"sync"

	"github.com/symgrad/symgrad/internal/dl"
)

// libc is what is needed of C's library: the environment that NCCL reads. It is C's own: os.Getenv
// does not see what is set there, and programs started by os/exec do not inherit it.
type libc struct {
	setenv func(name, value string, overwrite int32) int32 `dl:"setenv"`
}

// told is what NCCL shall find in its environment, whatever is there (dist/launch says the same to
// the processes it makes). It reads each when it makes its first communicator. NVLink multicast
// stays off: on a host whose fabric is shared it can put every GPU out of service. Ranks connect
// when a communicator is made and not in the first collective, which then waits for no peer.
var told = [...]struct{ name, value string }{
	{"NCCL_NVLS_ENABLE", "0"},
	{"NCCL_RUNTIME_CONNECT", "0"},
}

// tellNCCL sets them, once.
var tellNCCL = sync.OnceValue(func() error {
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		return err
	}
	var c libc
	if err := lib.Bind(&c); err != nil {
		return err
	}
	for _, v := range told {
		if c.setenv(v.name, v.value, 1) != 0 {
			return fmt.Errorf("the environment has no room for %s", v.name)
		}
	}
	return nil
})
