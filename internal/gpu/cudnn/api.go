package cudnn

import "github.com/symgrad/symgrad/internal/dl"

// front has the functions for the version. It is bound first, so that an old library is reported as
// too old.
type front struct {
	version   func() uint64                  `dl:"cudnnGetVersion"`
	cudart    func() uint64                  `dl:"cudnnGetCudartVersion"`
	errorText func(code int32) string        `dl:"cudnnGetErrorString"`
	lastError func(text *byte, bytes uint64) `dl:"cudnnGetLastErrorString,optional,since=9.0"`
}

// table has the functions of cuDNN that this package calls. All return cudnnStatus_t.
type table struct {
	create    func(out *uintptr) int32      `dl:"cudnnCreate"`
	destroy   func(h uintptr) int32         `dl:"cudnnDestroy"`
	setStream func(h, stream uintptr) int32 `dl:"cudnnSetStream"`

	tensorCreate  func(out *uintptr) int32                               `dl:"cudnnCreateTensorDescriptor"`
	tensorSet     func(d uintptr, format, dtype, n, c, h, w int32) int32 `dl:"cudnnSetTensor4dDescriptor"`
	tensorDestroy func(d uintptr) int32                                  `dl:"cudnnDestroyTensorDescriptor"`
	filterCreate  func(out *uintptr) int32                               `dl:"cudnnCreateFilterDescriptor"`
	filterSet     func(d uintptr, dtype, format, k, c, h, w int32) int32 `dl:"cudnnSetFilter4dDescriptor"`
	filterDestroy func(d uintptr) int32                                  `dl:"cudnnDestroyFilterDescriptor"`
	convCreate    func(out *uintptr) int32                               `dl:"cudnnCreateConvolutionDescriptor"`
	convMath      func(d uintptr, math int32) int32                      `dl:"cudnnSetConvolutionMathType"`
	convGroups    func(d uintptr, groups int32) int32                    `dl:"cudnnSetConvolutionGroupCount"`
	convDestroy   func(d uintptr) int32                                  `dl:"cudnnDestroyConvolutionDescriptor"`
	poolCreate    func(out *uintptr) int32                               `dl:"cudnnCreatePoolingDescriptor"`
	poolDestroy   func(d uintptr) int32                                  `dl:"cudnnDestroyPoolingDescriptor"`
	convSet       dl.Proc                                                `dl:"cudnnSetConvolution2dDescriptor"` // (d, pad h w, stride h w, dilation h w, mode, compute)
	poolSet       dl.Proc                                                `dl:"cudnnSetPooling2dDescriptor"`     // (d, mode, nan, window h w, pad h w, stride h w)

	poolForward  dl.Proc `dl:"cudnnPoolingForward"`  // (h, pool, alpha*, xd, x, beta*, yd, y)
	poolBackward dl.Proc `dl:"cudnnPoolingBackward"` // (h, pool, alpha*, yd, y, dyd, dy, xd, x, beta*, dxd, dx)

	// The three directions take the same arguments, with descriptors p and q of the inputs and r of
	// the output: forward x, w and y; data w, dy and dx; filter x, dy and dw.
	getForward  dl.Proc `dl:"cudnnGetConvolutionForwardAlgorithm_v7"` // (h, p, q, conv, r, most, n*, perf*)
	getData     dl.Proc `dl:"cudnnGetConvolutionBackwardDataAlgorithm_v7"`
	getFilter   dl.Proc `dl:"cudnnGetConvolutionBackwardFilterAlgorithm_v7"`
	findForward dl.Proc `dl:"cudnnFindConvolutionForwardAlgorithm"` // the same
	findData    dl.Proc `dl:"cudnnFindConvolutionBackwardDataAlgorithm"`
	findFilter  dl.Proc `dl:"cudnnFindConvolutionBackwardFilterAlgorithm"`
	sizeForward dl.Proc `dl:"cudnnGetConvolutionForwardWorkspaceSize"` // (h, p, q, conv, r, algorithm, bytes*)
	sizeData    dl.Proc `dl:"cudnnGetConvolutionBackwardDataWorkspaceSize"`
	sizeFilter  dl.Proc `dl:"cudnnGetConvolutionBackwardFilterWorkspaceSize"`
	runForward  dl.Proc `dl:"cudnnConvolutionForward"` // (h, alpha*, pd, p, qd, q, conv, algorithm, workspace, bytes, beta*, rd, r)
	runData     dl.Proc `dl:"cudnnConvolutionBackwardData"`
	runFilter   dl.Proc `dl:"cudnnConvolutionBackwardFilter"`
}
