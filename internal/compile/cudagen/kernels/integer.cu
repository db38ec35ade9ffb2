// 64-bit integer arithmetic that wraps around. W is s64, or u64 for operands of u64.

#define INTEGER(name, x)                 \
  template <class W>                     \
  INLINE s64 name(s64 p, s64 q) {        \
    const W a = (W)p, b = (W)q;          \
    (void)b;                             \
    return (s64)(x);                     \
  }
INTEGER(intLoad, a)
INTEGER(intAdd, (u64)a + (u64)b)
INTEGER(intSub, (u64)a - (u64)b)
INTEGER(intMul, (u64)a * (u64)b)
INTEGER(intMaximum, a < b ? b : a)
INTEGER(intMinimum, b < a ? b : a)
INTEGER(intLess, a < b)
INTEGER(intLessEqual, a <= b)
INTEGER(intGreater, a > b)
INTEGER(intGreaterEqual, a >= b)
INTEGER(intEqual, a == b)
INTEGER(intNotEqual, a != b)
#undef INTEGER

// intDiv truncates toward zero; the least integer divided by -1 is itself. b is not 0.
template <class W>
INLINE s64 intDiv(s64 p, s64 q) {
  const W a = (W)p, b = (W)q;
  return b == (W)-1 && (W)-1 < (W)0 ? (s64)(0 - (u64)p) : (s64)(a / b);
}
