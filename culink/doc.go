// Package culink joins this library with gorgonia.org/cu, for programs that use both: each gets
// contexts, streams and memory of the other. It has code only under the build tag cuda, since cu
// needs cgo and CUDA's headers, and nothing else of this module does.
//
//	s, err := culink.Stream(group.Stream())            // cu's calls in the order of the group's
//	p, err := culink.Pointer(buffer)                   // memory of ours in cu's calls
//	b, err := culink.Buffer(p, n, tensor.F32, device)  // memory of cu's in collectives
//	mine, err := culink.FromStream(group.Stream(), s)  // for group.On: collectives in cu's order
//
// # Contexts
//
// All that this library has on a device lives in the device's primary context, which the CUDA
// runtime uses as well. cu.Device.MakeContext and cu.NewContext make other ones, in which these
// streams are invalid and this memory is not accessible. Use the one that Context gives:
//
//	ctx, release, err := culink.Context(tensor.CUDA(0))
//	defer release()
//	c := cu.CtxFromCUContext(0, ctx, cu.SchedAuto) // for a *cu.Ctx; Close would destroy ctx
//
// Managed memory (cu.MemAllocManaged) is the exception: it is accessible in every context, and
// Buffer takes it from any.
//
// # Building
//
// cu v0.9.6 was written for CUDA 11. Since CUDA 13 five functions have other parameters. The folder
// compat has a cuda.h of our own that stands before CUDA's and gives them the parameters that cu
// uses, and a cudnn.h that does the same for cu/dnn and cuDNN 9, which gorgonia needs under this
// tag:
//
//	compat=$(go list -f '{{.Dir}}' github.com/symgrad/symgrad/culink)/compat
//	export CGO_CFLAGS="-I$compat -I/usr/local/cuda/include"
//	export CGO_LDFLAGS="-L/usr/local/cuda/lib64/stubs"
//	go build -tags cuda ./...
//
// The first -I must be that of compat; both headers then include the real one. With CUDA 11
// and 12, and cuDNN 7 and 8, they change nothing.
//
// # Why this is no module of its own
//
// A module of its own would keep cu out of this module's go.mod. But gorgonia requires cu, with or
// without its tag, so that it stands there in any case, and the tag already keeps it out of every
// build that does not ask for it. One module less is one version less that must fit.
package culink
