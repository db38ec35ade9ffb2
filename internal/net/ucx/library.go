package ucx

import (
	"fmt"
	"strings"
	"sync"

	"github.com/symgrad/symgrad/internal/dl"
)

// api has the functions of libucp, and of libucs, on which it depends.
type api struct {
	initVersion    dl.Proc `dl:"ucp_init_version"`
	cleanup        dl.Proc `dl:"ucp_cleanup"`
	configRead     dl.Proc `dl:"ucp_config_read"`
	configModify   dl.Proc `dl:"ucp_config_modify"`
	configRelease  dl.Proc `dl:"ucp_config_release"`
	workerCreate   dl.Proc `dl:"ucp_worker_create"`
	workerDestroy  dl.Proc `dl:"ucp_worker_destroy"`
	getAddress     dl.Proc `dl:"ucp_worker_get_address"`
	releaseAddress dl.Proc `dl:"ucp_worker_release_address"`
	progress       dl.Proc `dl:"ucp_worker_progress"`
	epCreate       dl.Proc `dl:"ucp_ep_create"`
	epClose        dl.Proc `dl:"ucp_ep_close_nbx"`
	send           dl.Proc `dl:"ucp_tag_send_nbx"`
	recv           dl.Proc `dl:"ucp_tag_recv_nbx"`
	check          dl.Proc `dl:"ucp_request_check_status"`
	test           dl.Proc `dl:"ucp_tag_recv_request_test"`
	cancel         dl.Proc `dl:"ucp_request_cancel"`
	free           dl.Proc `dl:"ucp_request_free"`

	versionText func() string      `dl:"ucp_get_version_string"`
	statusText  func(int32) string `dl:"ucs_status_string"`
}

// library is a loaded libucp.
type library struct {
	api
	path    string
	onError uintptr // address of handleError
}

// Found describes the library that Open uses.
type Found struct {
	Path    string
	Version string // "1.13.1"
}

// String returns "UCX 1.13.1 (/usr/lib/libucp.so.0.0.0)".
func (f Found) String() string { return fmt.Sprintf("UCX %s (%s)", f.Version, f.Path) }

// Find loads the library, as Open does, and describes it.
//
// Errors: dl.ErrNotFound with the package to install; dl.ErrUnsupported.
func Find() (Found, error) {
	l, err := loaded()
	if err != nil {
		return Found{}, err
	}
	return l.found(), nil
}

func (l *library) found() Found { return Found{l.path, l.versionText()} }

// place is the search for the library.
var place = dl.Search{Name: "ucx", Sonames: []string{"libucp.so.0"}}

// loaded returns the library of this process.
var loaded = sync.OnceValues(func() (*library, error) { return load(place) })

// libc has the function of C's library that changes the environment for UCX. Programs started by
// os/exec do not inherit the change.
type libc struct {
	setenv func(name, value string, overwrite int32) int32 `dl:"setenv"`
}

// ucxEnviron has the variables that libucs reads when it is loaded. The Go runtime handles all
// signals. The library's warnings go to standard error, as standard output belongs to the program,
// unless the user's value says otherwise. Connections are made without waiting: else the first
// message to a host that is gone keeps the process in connect(2), for seconds.
var ucxEnviron = [...]struct {
	name, value string
	overwrite   int32
}{
	{"UCX_ERROR_SIGNALS", "", 1},
	{"UCX_LOG_FILE", "stderr", 0},
	{"UCX_TCP_CONN_NB", "y", 0},
}

// setEnviron sets the variables of ucxEnviron for libraries that are loaded later.
func setEnviron() error {
	lib, err := dl.Open(dl.Search{Name: "libc", Sonames: []string{"libc.so.6"}})
	if err != nil {
		return err
	}
	var c libc
	if err := lib.Bind(&c); err != nil {
		return err
	}
	for _, v := range ucxEnviron {
		if c.setenv(v.name, v.value, v.overwrite) != 0 {
			return fmt.Errorf("ucx: the environment has no room for %s", v.name)
		}
	}
	return nil
}

// load loads a library such that all signals stay with the Go runtime.
func load(s dl.Search) (*library, error) {
	l := new(library)
	err := keepSignals(func() error {
		if err := setEnviron(); err != nil {
			return err
		}
		lib, err := dl.Open(s)
		if err != nil {
			return fmt.Errorf("ucx: no UCX: install package libucx0 (Debian, Ubuntu) or ucx (Fedora): %w", err)
		}
		l.path = lib.Path()
		return lib.Bind(&l.api)
	})
	if err != nil {
		return nil, err
	}
	l.onError, err = dl.Callback(handleError)
	return l, err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// text returns the library's words for s, in lower case: "endpoint timeout".
func (l *library) text(s status) string { return strings.ToLower(l.statusText(int32(s))) }

// release frees a request.
func (l *library) release(h uintptr) { _, _ = l.free.Status(h) }

// failed returns the error of a call named call, given the results of Proc.Call.
func (l *library) failed(call string, r uintptr, err error) error {
	if err != nil {
		return fmt.Errorf("ucx: %w", err)
	}
	if s := status(r); s < 0 {
		return fmt.Errorf("ucx: %s: %s", call, l.text(s))
	}
	return nil
}
