// An allreduce between two ranks whose blocks do it in three ways at once: what comes first of the data goes by tiles, what follows by
// lines, and the rest by way of the host's memory, which is a way of its own beside the links. Lines cost these more than tiles do, but
// wait for no fence, so that they have something to carry where tiles wait.
#if RED != RED_NONE && RANKS == 2
template <bool WHOLE>
__device__ __forceinline__ void divided(const Call &c, u64 e, Watch &w) {
  const u32 hosts = HOST_SENDERS + HOST_ADDERS, lined = numberOf(byLinesOf(c));
  if (blockIdx.x < hosts) {
    byHost<WHOLE>(c, e, w);
    return;
  }
  Call part = c;
  part.block = blockIdx.x - hosts;
  part.bytes = c.bytes - bytesOf(byLinesOf(c)) - bytesOf(byHostOf(c));
  if (part.block >= lined) {
    part.block -= lined;
    part.blocks = gridDim.x - hosts - lined;
    part.dstStride = c.srcStride;
    tiles<true, WHOLE>(part, e, w);
    return;
  }
  part.blocks = lined;
  part.src += part.bytes;
  part.dst += part.bytes;
  part.bytes = bytesOf(byLinesOf(c));
  part.area = read8(c.local + HOST_AT + 16);
  part.half = read8(c.local + HOST_AT + 24);
  twice<WHOLE>(part, e, w);
}
#endif
