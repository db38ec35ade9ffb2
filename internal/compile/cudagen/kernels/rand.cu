// Random numbers by counting: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011. Philox-4x32-10 with the constants of its section 4.

// uniform returns a number in [0, 1) of 24 bits, from the first word of Philox with counter
// (element, step) and key key.
template <class A>
INLINE A uniform(u64 element, u64 step, u64 key) {
  u32 a = (u32)element, b = (u32)(element >> 32), c = (u32)step, d = (u32)(step >> 32);
  u32 k = (u32)key, l = (u32)(key >> 32);
#pragma unroll
  for (int i = 0; i < 10; i++) {
    const u64 p = (u64)0xd2511f53u * a, q = (u64)0xcd9e8d57u * c;
    a = (u32)(q >> 32) ^ b ^ k;
    b = (u32)q;
    c = (u32)(p >> 32) ^ d ^ l;
    d = (u32)p;
    k += 0x9e3779b9u;
    l += 0xbb67ae85u;
  }
  return (A)(a >> 8) * (A)(1.0 / 16777216.0);
}
