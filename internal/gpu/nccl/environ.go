package nccl

import (
	"fmt"
	"sync"

	"github.com/symgrad/symgrad/internal/dl"
)

// libc has the function of C's library that changes the environment for NCCL. os.Setenv does not
// reach C's environment, and programs started by os/exec do not inherit it.
type libc struct {
	setenv func(name, value string, overwrite int32) int32 `dl:"setenv"`
}

// ncclEnviron has the variables that NCCL must find, overriding the user's (dist/launch sets the
// same for its processes). NCCL reads them when it makes its first communicator. NVLink multicast
// stays off: on a host with a shared fabric it can disable every GPU. Ranks connect when a
// communicator is made, so the first collective waits for no peer.
var ncclEnviron = [...]struct{ name, value string }{
	{"NCCL_NVLS_ENABLE", "0"},
	{"NCCL_RUNTIME_CONNECT", "0"},
}

// setEnviron sets the variables, once.
var setEnviron = sync.OnceValue(func() error {
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		return err
	}
	var c libc
	if err := lib.Bind(&c); err != nil {
		return err
	}
	for _, v := range ncclEnviron {
		if c.setenv(v.name, v.value, 1) != 0 {
			return fmt.Errorf("the environment has no room for %s", v.name)
		}
	}
	return nil
})
