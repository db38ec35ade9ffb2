package train

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalColumns is the width of the terminal behind w, 0 if it is none.
func terminalColumns(w io.Writer) int {
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
			columns = max(int(size.Col), 1) // 0 is a terminal that does not know
		}
	})
	if err != nil {
		return 0
	}
	return columns
}
