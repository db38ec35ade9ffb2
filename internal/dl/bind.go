package dl

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"
)

var procType = reflect.TypeFor[Proc]()

// Bind fills the tagged fields of the struct that table points to:
//
//	init   func(*int32, uintptr) int32 `dl:"MPI_Init"`                           // typed
//	reduce dl.Proc                     `dl:"MPI_Reduce"`                         // words
//	comm   uintptr                     `dl:"ompi_mpi_comm_world,optional"`       // variable
//	shrink dl.Proc                     `dl:"ncclCommShrink,optional,since=2.27"` // optional
//
// since is the version that introduced the symbol, for the message if it is missing. Fields without
// the tag are unchanged; fields may be unexported. A missing optional symbol is a nil func (see
// Require for its error), a zero address, or a Proc whose Call returns ErrUnsupported.
//
// Errors: ErrUnsupported, with every missing required symbol and every func type that has no C
// counterpart; a malformed tag. After an error the table is unchanged.
func (l *Library) Bind(table any) error {
	ptr := reflect.ValueOf(table)
	if ptr.Kind() != reflect.Pointer || ptr.IsNil() || ptr.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("dl: %s: bind needs a pointer to a struct, got %T", l, table)
	}
	st := ptr.Elem()
	values := make([]reflect.Value, st.NumField())
	var errs []error
	for i := range values {
		field := st.Type().Field(i)
		tag, ok := field.Tag.Lookup("dl")
		if !ok {
			continue
		}
		v, err := l.bindField(field.Type, tag)
		if err != nil {
			errs = append(errs, fmt.Errorf("field %s: %w", field.Name, err))
		}
		values[i] = v
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for i, v := range values {
		if v.IsValid() {
			dst := st.Field(i)
			// Through its address, because reflect does not set unexported fields.
			reflect.NewAt(dst.Type(), unsafe.Pointer(dst.UnsafeAddr())).Elem().Set(v)
		}
	}
	return nil
}

// bindField returns the value for a field.
func (l *Library) bindField(typ reflect.Type, tag string) (reflect.Value, error) {
	t, err := parseTag(tag)
	if err != nil {
		return reflect.Value{}, err
	}
	if typ.Kind() == reflect.Func {
		// Before the lookup: an invalid signature is an error even if this machine's library lacks
		// the symbol.
		if err := checkSignature(typ); err != nil {
			return reflect.Value{}, fmt.Errorf("symbol %q as %s: %w", t.symbol, typ, err)
		}
	}
	addr := l.find(t.symbol)
	if addr == 0 && !t.optional {
		return reflect.Value{}, l.missing(t.symbol, t.since)
	}
	switch {
	case typ == procType:
		return reflect.ValueOf(l.Proc(t.symbol, t.since)), nil
	case typ.Kind() == reflect.Uintptr:
		return reflect.ValueOf(addr).Convert(typ), nil
	case typ.Kind() == reflect.Func:
		fn := reflect.New(typ)
		if addr == 0 {
			return fn.Elem(), nil
		}
		if err := register(fn.Interface(), addr); err != nil {
			return reflect.Value{}, fmt.Errorf("symbol %q as %s: %w", t.symbol, typ, err)
		}
		return fn.Elem(), nil
	}
	return reflect.Value{}, fmt.Errorf("symbol %q: a %s cannot hold a symbol: use a func, dl.Proc or uintptr", t.symbol, typ)
}

// fieldTag is a parsed dl:"symbol[,optional][,since=version]".
type fieldTag struct {
	symbol   string
	optional bool
	since    string
}

func parseTag(tag string) (fieldTag, error) {
	parts := strings.Split(tag, ",")
	t := fieldTag{symbol: parts[0]}
	if t.symbol == "" {
		return t, fmt.Errorf("tag dl:%q names no symbol", tag)
	}
	for _, p := range parts[1:] {
		since, isSince := strings.CutPrefix(p, "since=")
		switch {
		case p == "optional":
			t.optional = true
		case isSince && since != "":
			t.since = since
		default:
			return t, fmt.Errorf("tag dl:%q: unknown option %q, want optional or since=VERSION", tag, p)
		}
	}
	return t, nil
}

// checkSignature rejects func types that purego would reject, leak or garble only at the call. It
// does not check struct layouts, which register leaves to purego.
func checkSignature(typ reflect.Type) error {
	if typ.IsVariadic() {
		return fmt.Errorf("%w: variadic C functions cannot be called with floats", ErrUnsupported)
	}
	for i := range typ.NumIn() {
		switch k := typ.In(i).Kind(); k {
		case reflect.Func:
			return fmt.Errorf("%w: func parameter: make a Callback once and pass its address", ErrUnsupported)
		case reflect.Interface, reflect.Map, reflect.Chan, reflect.Array, reflect.Complex64, reflect.Complex128:
			return fmt.Errorf("%w: %s parameter", ErrUnsupported, k)
		}
	}
	if typ.NumOut() > 1 {
		return fmt.Errorf("%w: %d results", ErrUnsupported, typ.NumOut())
	}
	if typ.NumOut() == 0 {
		return nil
	}
	switch k := typ.Out(0).Kind(); k {
	case reflect.Bool, reflect.String, reflect.Pointer, reflect.UnsafePointer, reflect.Struct, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return nil
	default:
		return fmt.Errorf("%w: %s result", ErrUnsupported, k)
	}
}

// register points the func that fptr points to at the C function at addr.
func register(fptr any, addr uintptr) (err error) {
	defer recoverAs(&err)
	sysRegister(fptr, addr)
	return nil
}

// Callback makes a C function of fn, for a library to call: at most one result; integers, bools and
// pointers, and float32 or float64 parameters. It may be called on any thread.
//
// Returns: the C address, valid until the process ends. A process has at most 2000 callbacks, which
// are never freed: make each once, and distinguish calls by the user pointer of C interfaces.
// Errors: ErrUnsupported for a signature without a C counterpart, or if none are left.
func Callback(fn any) (addr uintptr, err error) {
	defer recoverAs(&err)
	if reflect.ValueOf(fn).Kind() != reflect.Func {
		return 0, fmt.Errorf("dl: callback of type %T: %w", fn, ErrUnsupported)
	}
	return sysCallback(fn)
}

// recoverAs converts a panic of purego, which returns no errors, into an error.
func recoverAs(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("dl: %w: %v", ErrUnsupported, r)
	}
}
