// Package cudnn calls cuDNN 9 without cgo: convolutions and pooling of NCHW images, forward and
// backward. They are queued on a stream, which may capture a graph.
//
//	lib, err := cudnn.Open(cudnn.Config{CUDA: driver.Version()})
//	h, err := lib.NewHandle(stream)
//	defer h.Close()
//	c, err := h.NewConv(cudnn.ConvDesc{
//	    DType: cudnn.F32, N: 256, C: 1, H: 28, W: 28, K: 32, R: 3, S: 3, PadH: 1, PadW: 1,
//	})
//	defer c.Close()
//	ws, err := device.Alloc(c.WorkspaceBytes())
//	err = c.Forward(x, w, y, ws)
//	err = c.BackwardData(w, dy, dx, ws)
//	err = c.BackwardFilter(x, dy, dw, ws)
//
// A machine without cuDNN is no mistake: Open returns ErrLibrary, which IsUnavailable recognizes.
// It also recognizes dl.ErrUnsupported, for operations that the library lacks.
//
//	library.go, api.go, handle.go  Open, the functions of cuDNN, and its state for a stream
//	conv.go, pool.go               Conv and Pool
//	choose.go, time.go             the choice of an algorithm, and measured times
//
// # Which functions?
//
// Those of cuDNN 7, which 9 still has (cudnn_ops.h, cudnn_cnn.h). A convolution is three
// descriptors, an algorithm and a workspace, and needs no graph of backend descriptors. The filter
// is not flipped (CUDNN_CROSS_CORRELATION), as everywhere in machine learning.
//
// # Which arithmetic?
//
//	type       Math   products            sums
//	f32        Full   f32                 f32     CUDNN_FMA_MATH; algorithms for TF32 are skipped
//	f32        TF32   TF32 or f32         f32     CUDNN_DEFAULT_MATH
//	f16, bf16  Full   exact               f32     CUDNN_TENSOR_OP_MATH
//	f64        Full   f64                 f64
//
// Algorithms by FFT and Winograd's transform round differently from a plain sum.
//
// # Which algorithm?
//
// The first of cuDNN's own order (cudnnGetConvolution*Algorithm_v7) that succeeds, fits in the
// workspace and, if requested, is deterministic. With ConvDesc.Timed it is the fastest of those
// that cudnnFind* finds, measured in a graph. Each direction has its own convolution descriptor,
// since that has the kind of arithmetic, which depends on the algorithm. A Conv keeps its choice,
// but the next run of a program may choose another one with Timed.
//
// # Threads
//
// cuDNN uses the device of the thread's current context, so each call makes the context current. It
// loads kernels at their first use: run operations once before a capture.
//
// # Which library?
//
// Config.Path; or the loader's libcudnn.so.9; or one in Config.Dirs. The parts of cuDNN are loaded
// from its folder. cuBLASLt and NVRTC, which it opens by bare name, are loaded from the places in
// which this package searches.
package cudnn
