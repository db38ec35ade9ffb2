// Package report has the texts and files that a run writes for people: the header, the progress,
// the summary, and step times.
package report
