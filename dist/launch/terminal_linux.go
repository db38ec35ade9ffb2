package launch

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Columns returns the width of the terminal that w writes to: the variable COLUMNS if it is a
// number, as for ls and man, or else the terminal's width.
//
// Returns: 0 if w is no terminal.
func Columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	conn, err := f.SyscallConn() // unlike Fd, it leaves the file as it is
	if err != nil {
		return 0
	}
	columns := 0
	err = conn.Control(func(fd uintptr) {
		if size, sizeErr := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); sizeErr == nil {
			columns = max(int(size.Col), 1) // a terminal of unknown width has 0
		}
	})
	if err != nil || columns == 0 {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 && n <= maxColumns {
		return n
	}
	return columns
}
