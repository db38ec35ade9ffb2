// Package cudnn is cuDNN 9 without cgo: convolutions and pooling of images that lie as NCHW,
// forward and backward, queued on a stream, also while the stream captures a graph.
//
//	lib, err := cudnn.Open(cudnn.Config{CUDA: driver.Version()})
//	h, err := lib.NewHandle(stream)
//	defer h.Close()
//	d := cudnn.ConvDesc{DType: cudnn.F32, N: 256, C: 1, H: 28, W: 28, K: 32, R: 3, S: 3}
//	c, err := h.NewConv(d)
//	defer c.Close()
//	ws, err := device.Alloc(c.WorkspaceBytes())
//	err = c.Forward(x, w, y, ws)
//	err = c.BackwardData(w, dy, dx, ws)
//	err = c.BackwardFilter(x, dy, dw, ws)
//
// A machine without cuDNN is no fault: Open returns ErrLibrary, and IsUnavailable distinguishes it
// from mistakes. Operations that the library does not do for a type or an architecture return
// dl.ErrUnsupported.
//
// # Which functions?
//
// Those of cuDNN 7, which 9 keeps (cudnn_ops.h, cudnn_cnn.h): a convolution is three descriptors,
// an algorithm and a workspace, and can be bound without a graph of backend descriptors. The filter
// is not flipped (CUDNN_CROSS_CORRELATION), as everywhere in machine learning.
//
// # Which arithmetic?
//
//	type       Math   products            sums
//	f32        Full   f32                 f32     CUDNN_FMA_MATH; algorithms with TF32 are skipped
//	f32        TF32   TF32 or f32         f32     CUDNN_DEFAULT_MATH
//	f16, bf16  Full   exact               f32     CUDNN_TENSOR_OP_MATH
//	f64        Full   f64                 f64
//
// Algorithms by FFT and Winograd's transform round in other places than a plain sum does.
//
// # Which algorithm?
//
// The first of cuDNN's own order (cudnnGetConvolution*Algorithm_v7) that succeeds, fits the
// workspace and is deterministic where that is asked for; with ConvDesc.Timed the fastest of those
// that cudnnFind* finds, measured in a graph. Each direction has a convolution descriptor of its
// own, because the kind of arithmetic is kept there and goes with the algorithm. A Conv stays as it
// was made; Timed may choose another one at the next run of the program.
//
// # Threads
//
// cuDNN takes the thread's current context for its device, so that each call makes the device's
// context current by itself. It loads kernels at the first use of each. Run an operation once
// before its capture.
//
// # Which library?
//
// Config.Path; or the loader's libcudnn.so.9; or the one in Config.Dirs. The parts of cuDNN are
// loaded from its folder. cuBLASLt and NVRTC, which it looks for by their bare names, are loaded
// from the places of this package's search.
package cudnn
