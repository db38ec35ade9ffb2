// Package timeline records when the ranks of a training compute and communicate, and writes the
// timeline of all ranks to one file. The clocks of several hosts are compared first.
package timeline
