// Package foreign reads files that another program or another user may have made.
//
// Such a file may be a pipe that no process writes to, a device without an end, longer than memory,
// of another format, or writable by users who are not trusted. Open refuses everything except
// regular files and never waits. ReadFile, ReadNamed and ReadAll take no more memory than their
// caller allows. Private reports whether other users can change a file. Sniff names the format of a
// file that is not of the expected one.
package foreign
