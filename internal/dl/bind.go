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
//	init   func(argc *int32, argv uintptr) int32 `dl:"MPI_Init"`                              // converted call
//	reduce dl.Proc                               `dl:"MPI_Reduce"`                            // call with machine words
//	comm   uintptr                               `dl:"ompi_mpi_comm_world,optional"`          // address of a variable
//	shrink dl.Proc                               `dl:"ncclCommShrink,optional,since=2.27"`    // may be missing
//
// since is the version that brought the symbol, for the message when it is missing. Fields without
// the tag are left alone; fields may be unexported. A missing optional symbol is a nil func (see
// Require for its error), a zero address, or a Proc that answers ErrUnsupported.
//
// Errors: ErrUnsupported, naming every missing required symbol and every func type that has no C
// counterpart; a malformed tag. On an error the table is as it was.
func (l *Library) Bind(table any) error {
	ptr := reflect.ValueOf(table)
	if ptr.Kind() != reflect.Pointer || ptr.IsNil() || ptr.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("dl: %s: bind wants a pointer to a struct, got %T", l, table)
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

// bindField is the value for one field.
func (l *Library) bindField(typ reflect.Type, tag string) (reflect.Value, error) {
	t, err := parseTag(tag)
	if err != nil {
		return reflect.Value{}, err
	}
	if typ.Kind() == reflect.Func {
		// Before the lookup: a wrong signature is a mistake whether or not this machine's library
		// has the symbol.
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
	return reflect.Value{}, fmt.Errorf("symbol %q: a %s cannot hold one, want a func, dl.Proc or uintptr", t.symbol, typ)
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

// checkSignature refuses the func types that purego would only refuse, leak or garble at the call.
// It knows nothing of struct layouts: register has purego check those.
func checkSignature(typ reflect.Type) error {
	if typ.IsVariadic() {
		return fmt.Errorf("%w: variadic C functions cannot be called with floats", ErrUnsupported)
	}
	for i := range typ.NumIn() {
		switch k := typ.In(i).Kind(); k {
		case reflect.Func:
			return fmt.Errorf("%w: func parameter: make it with Callback once and pass the address", ErrUnsupported)
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
// Returns: the C address, valid until the process ends. A process has 2000 of them and never gets
// one back: make each once, and tell calls apart by the user pointer that C interfaces pass along.
// Errors: ErrUnsupported for a signature with no C counterpart, or when none are left.
func Callback(fn any) (addr uintptr, err error) {
	defer recoverAs(&err)
	if reflect.ValueOf(fn).Kind() != reflect.Func {
		return 0, fmt.Errorf("dl: callback of type %T: %w", fn, ErrUnsupported)
	}
	return sysCallback(fn)
}

// recoverAs turns purego's panics (it has no error results) into an error.
func recoverAs(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("dl: %w: %v", ErrUnsupported, r)
	}
}
