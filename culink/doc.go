// Package culink lets a program use this library and gorgonia.org/cu together: each can use
// contexts, streams and memory of the other. It has code only under the build tag cuda, because cu
// needs cgo and CUDA's headers, which nothing else in this module needs.
//
//	s, err := culink.Stream(group.Stream())            // cu's calls in the order of the group's
//	p, err := culink.Pointer(buffer)                   // this library's memory in cu's calls
//	b, err := culink.Buffer(p, n, tensor.F32, device)  // cu's memory in collectives
//	mine, err := culink.FromStream(group.Stream(), s)  // group.On(mine): in the order of cu's calls
//
// # Contexts
//
// All resources of this library on a device are in the device's primary context, which the CUDA
// runtime also uses. cu.Device.MakeContext and cu.NewContext make other contexts, where these
// streams are invalid and this memory is inaccessible. Use the one that Context returns:
//
//	ctx, release, err := culink.Context(tensor.CUDA(0))
//	defer release()
//	c := cu.CtxFromCUContext(0, ctx, cu.SchedAuto)       // a *cu.Ctx; its Close would destroy ctx
//
// Managed memory (cu.MemAllocManaged) is the exception: it is accessible in every context, and
// Buffer accepts it from any.
//
// # Building
//
// cu v0.9.6 was written for CUDA 11. CUDA 13 changed the parameters of five functions. The folder
// compat has a cuda.h that is included before CUDA's and restores the parameters that cu uses. Its
// cudnn.h does the same for cu/dnn and cuDNN 9, which gorgonia needs under this tag:
//
//	compat=$(go list -f '{{.Dir}}' github.com/symgrad/symgrad/culink)/compat
//	export CGO_CFLAGS="-I$compat -I/usr/local/cuda/include"
//	export CGO_LDFLAGS="-L/usr/local/cuda/lib64/stubs"
//	go build -tags cuda ./...
//
// The first -I must be that of compat; both headers include the real ones. They change nothing with
// CUDA 11 and 12, and cuDNN 7 and 8.
//
// # Why culink is no separate module
//
// A separate module would keep cu out of this module's go.mod. But gorgonia requires cu with or
// without its tag, so cu is there anyway, and the tag keeps it out of other builds.
package culink
