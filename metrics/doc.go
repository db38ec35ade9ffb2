// Package metrics writes the metrics of a training step by step, and reads them again: the loss,
// the learning rate, samples per second, and any number that a program measures.
//
// A Writer appends a line for each recorded step to metrics.jsonl in the folder of the run:
//
//	w, err := metrics.Open("runs/own", metrics.Config{})           // before the first step
//	err = w.Write(step, metrics.Values{metrics.Loss: loss})        // after a step
//	err = w.Close()                                                // at the end
//
// It can also write a CSV file, and event files for TensorBoard. Both are made from metrics.jsonl.
// One rank of a job writes. On the others use a nil Writer, which does nothing.
//
// A line is a JSON object. Its fields are step, time (seconds since 1970), seconds (of training so
// far, resumed runs included), and the metrics in the order of their names:
//
//	{"step":50,"time":1765432100.125,"seconds":1.25,"loss":0.3401,"samples":6400}
//
// null is a number that is not finite, such as the loss of a skipped step. A process that is killed
// leaves whole lines: all that were flushed, and at most one more without a line end, which Read
// ignores.
//
// Package train writes this file for every run, and symgrad plot draws it.
package metrics
