package hostexec

import (
	"unsafe"

	"github.com/symgrad/symgrad/internal/compile/program"
)

// columnBytes is the size of a block of columns: with the panels of the product it stays in the L2
// cache.
const columnBytes = 256 << 10

// convStep is a Conv: for an image and some rows of outputs, y (K, outputs) = filter (K, C*R*S)
// times columns.
type convStep[T real] struct {
	window
	product[T]
	mover[T]
	k          int
	x, f, y    place
	rows       int // of outputs, in a piece
	blocks     int // of rows
	colBytes   int
	last       product[T] // of the last block, which may have fewer rows
	lastHeight int
}

func newConv[T real](k *maker, s *program.Step, op *program.Conv) ([]phase, error) {
	c := &convStep[T]{
		window: newWindow(op.Window), mover: mover[T]{k.level}, k: op.K,
		x: placeOf(&s.In[0]), f: placeOf(&s.In[1]), y: placeOf(&s.Out[0]),
	}
	if op.N*op.K*c.result() == 0 {
		return nil, nil
	}
	depth := op.C * c.taps()
	c.rows = even(op.OutH, max(1, columnBytes/(size[T]()*max(1, depth*op.OutW))))
	c.blocks = (op.OutH + c.rows - 1) / c.rows
	c.lastHeight = op.OutH - (c.blocks-1)*c.rows
	c.product = c.of(k.level, depth, c.rows)
	c.last = c.of(k.level, depth, c.lastHeight)
	c.colBytes = up(depth * c.rows * op.OutW * size[T]())
	k.need(c.colBytes+max(c.product.scratch(), c.last.scratch()), 0)
	return []phase{{c, op.N * c.blocks}}, nil
}

// of returns the product for a number of rows of outputs.
func (c *convStep[T]) of(l *level, depth, rows int) product[T] {
	g := product[T]{
		m: c.k, n: rows * c.OutW, k: depth, aRow: depth, aCol: 1, bRow: rows * c.OutW, bCol: 1, cRow: c.result(), alpha: 1,
	}
	g.plan(l)
	return g
}

func (c *convStep[T]) piece(w *worker, i int) {
	n, y0, g := i/c.blocks, i%c.blocks*c.rows, &c.product
	y1 := y0 + c.rows
	if i%c.blocks == c.blocks-1 {
		y1, g = c.OutH, &c.last
	}
	cols := w.scratch
	imToCols(&c.window, c.mover, cols, c.x.from(w, n*c.C*c.image()), 0, c.C, y0, y1)
	packed := unsafe.Add(cols, c.colBytes)
	g.serial(w, operandsOf{
		c.f.from(w, 0), cols, c.y.from(w, n*c.k*c.result()+y0*c.OutW), packed, unsafe.Add(packed, g.blockA),
	})
}

// inputGradStep is a ConvGradInput: for an image and some channels, columns = filterᵀ times dy.
// These are added to the image tap by tap.
type inputGradStep[T real] struct {
	window
	product[T]
	mover[T]
	k         int
	dy, f, dx place
	channels  int // of a piece
	groups    int // of channels
	colBytes  int
	last      product[T] // of the last group
}

func newConvGradInput[T real](k *maker, s *program.Step, op *program.ConvGradInput) ([]phase, error) {
	c := &inputGradStep[T]{
		window: newWindow(op.Window), mover: mover[T]{k.level}, k: op.K,
		dy: placeOf(&s.In[0]), f: placeOf(&s.In[1]), dx: placeOf(&s.Out[0]),
	}
	if op.N*op.C*c.image() == 0 {
		return nil, nil
	}
	c.channels = even(op.C, max(1, columnBytes/(size[T]()*max(1, c.taps()*c.result()))))
	c.groups = (op.C + c.channels - 1) / c.channels
	c.product = c.of(k.level, c.channels)
	c.last = c.of(k.level, op.C-(c.groups-1)*c.channels)
	c.colBytes = up(c.channels * c.taps() * c.result() * size[T]())
	k.need(c.colBytes+max(c.product.scratch(), c.last.scratch()), 0)
	return []phase{{c, op.N * c.groups}}, nil
}

// of returns the product for a number of channels.
func (c *inputGradStep[T]) of(l *level, channels int) product[T] {
	g := product[T]{
		m: channels * c.taps(), n: c.result(), k: c.k, aRow: 1, aCol: c.C * c.taps(), bRow: c.result(), bCol: 1, cRow: c.result(), alpha: 1,
	}
	g.plan(l)
	return g
}

func (c *inputGradStep[T]) piece(w *worker, i int) {
	n, c0, g := i/c.groups, i%c.groups*c.channels, &c.product
	if i%c.groups == c.groups-1 {
		g = &c.last
	}
	c1 := min(c0+c.channels, c.C)
	image := c.dx.from(w, n*c.C*c.image())
	clear(unsafe.Slice((*T)(unsafe.Add(image, c0*c.image()*size[T]())), (c1-c0)*c.image()))
	if c.result() == 0 {
		return
	}
	cols := w.scratch
	packed := unsafe.Add(cols, c.colBytes)
	g.serial(w, operandsOf{
		c.f.from(w, c0*c.taps()), c.dy.from(w, n*c.k*c.result()), cols, packed, unsafe.Add(packed, g.blockA),
	})
	colsToIm(&c.window, c.mover, cols, image, c0, c1, 0, c.OutH)
}

const (
	mostGroups   = 16      // of images
	partialElems = 4 << 20 // of the sums of all groups
)

// filterGradStep is a ConvGradFilter: for some images, one after the other, and some channels, df
// += dy times columnsᵀ. A second phase adds the sums of the groups of images, in order.
type filterGradStep[T real] struct {
	window
	product[T] // adds
	mover[T]
	prims[T]
	k         int
	x, dy, df place
	channels  int // of a piece
	blocks    int // of channels
	images    int // of a group
	groups    int
	sums      place // of the groups: df itself if there is one group
	rows      int   // of outputs at a time
	colBytes  int
}

type filterJoin[T real] filterGradStep[T]

func newConvGradFilter[T real](k *maker, s *program.Step, op *program.ConvGradFilter) ([]phase, error) {
	c := &filterGradStep[T]{
		window: newWindow(op.Window), mover: mover[T]{k.level}, prims: prims[T]{k.level}, k: op.K,
		x: placeOf(&s.In[0]), dy: placeOf(&s.In[1]), df: placeOf(&s.Out[0]),
	}
	depth := op.C * c.taps()
	if op.K*depth == 0 {
		return nil, nil
	}
	groups := max(1, min(op.N, mostGroups, partialElems/(op.K*depth)))
	c.images = (max(1, op.N) + groups - 1) / groups
	c.groups = max(1, (op.N+c.images-1)/c.images)
	c.channels = even(op.C, max(1, op.C*c.groups/enoughUnits))
	c.blocks = (op.C + c.channels - 1) / c.channels
	c.rows = even(op.OutH, max(1, columnBytes/(size[T]()*max(1, c.channels*c.taps()*op.OutW))))
	c.colBytes = up(c.channels * c.taps() * c.rows * op.OutW * size[T]())
	c.product = c.of(k.level, c.channels, c.rows)
	k.need(c.colBytes+c.product.scratch(), 0)
	c.sums = c.df
	phases := []phase{{c, c.groups * c.blocks}}
	if c.groups > 1 {
		c.sums = place{id: k.temp(dtypeOf[T](), c.groups*op.K*depth)}
		phases = append(phases, phase{(*filterJoin[T])(c), (op.K*depth + partElems - 1) / partElems})
	}
	return phases, nil
}

// of returns the product for a number of channels and rows of outputs.
func (c *filterGradStep[T]) of(l *level, channels, rows int) product[T] {
	n, wide := channels*c.taps(), rows*c.OutW
	g := product[T]{
		m: c.k, n: n, k: wide, aRow: c.result(), aCol: 1, bRow: 1, bCol: wide, cRow: c.C * c.taps(), alpha: 1, adds: true,
	}
	g.plan(l)
	return g
}

func (c *filterGradStep[T]) piece(w *worker, i int) {
	group, c0 := i/c.blocks, i%c.blocks*c.channels
	c1, depth := min(c0+c.channels, c.C), c.C*c.taps()
	n := (c1 - c0) * c.taps()
	at := group*c.k*depth + c0*c.taps()
	for k := range c.k {
		clear(unsafe.Slice((*T)(c.sums.from(w, at+k*depth)), n))
	}
	if c.result() == 0 {
		return
	}
	cols := w.scratch
	packed := unsafe.Add(cols, c.colBytes)
	for image := group * c.images; image < min((group+1)*c.images, c.N); image++ {
		for y := 0; y < c.OutH; y += c.rows {
			g := c.product
			rows := min(c.rows, c.OutH-y)
			g.n, g.k, g.bCol = n, rows*c.OutW, rows*c.OutW
			imToCols(&c.window, c.mover, cols, c.x.from(w, image*c.C*c.image()), c0, c1, y, y+rows)
			g.serial(w, operandsOf{
				c.dy.from(w, image*c.k*c.result()+y*c.OutW), cols, c.sums.from(w, at), packed, unsafe.Add(packed, g.blockA),
			})
		}
	}
}

func (c *filterJoin[T]) piece(w *worker, i int) {
	total := c.k * c.C * c.taps()
	from := i * partElems
	n := min(partElems, total-from)
	df := c.df.from(w, from)
	c.do(w, opCopy, n, df, c.sums.from(w, from), df, 1, 1)
	for group := 1; group < c.groups; group++ {
		c.do(w, opAdd, n, df, df, c.sums.from(w, group*total+from), 1, 1)
	}
}
