package checkpoint_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/symgrad/symgrad/checkpoint"
	"github.com/symgrad/symgrad/tensor"
)

// Two ranks save half of a parameter each; one rank resumes and reads all of it.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w := checkpoint.Tensor{Name: "w", Role: checkpoint.Param, DType: tensor.F32, Shape: []int{2, 256}}
	mine := [][]float32{make([]float32, 256), make([]float32, 256)}
	mine[1][255] = 7

	var savers []*checkpoint.Saver // of a rank each; they are in one process here
	for rank := range 2 {
		s, err := checkpoint.New(checkpoint.Options{Dir: dir, Keep: 3, Async: true, Sharded: true, Rank: rank, Size: 2})
		if err != nil {
			log.Fatal(err)
		}
		savers = append(savers, s)
	}
	for rank, s := range savers {
		runs := []checkpoint.Run{{Tensor: w, Offset: 256 * rank, Len: 256, Data: tensor.Of(mine[rank])}}
		meta := checkpoint.Meta{Step: 200, Stage: 1, Sampler: json.RawMessage(`{"epoch":1,"next":12800}`)}
		if err := s.Save(meta, runs); err != nil {
			log.Fatal(err)
		}
	}
	if err := errors.Join(savers[0].Close(), savers[1].Close()); err != nil {
		log.Fatal(err)
	}

	c, err := checkpoint.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	all := make([]float32, 512)
	if err := c.Read("w", 0, tensor.Of(all)); err != nil {
		log.Fatal(err)
	}
	m := c.Manifest()
	fmt.Printf("step %d of %d ranks, sampler %s\n", m.Step, m.WorldSize, m.Sampler)
	for _, t := range c.Tensors() {
		fmt.Println(t, "ends with", all[511])
	}
	// Output:
	// step 200 of 2 ranks, sampler {"epoch":1,"next":12800}
	// w f32[2 256] ends with 7
}
