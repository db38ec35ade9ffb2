// An allreduce between two ranks whose blocks do it in three ways at once: what comes first of the data goes by tiles, what follows by
// lines, and the rest by way of the host's memory, which is a way of its own beside the links. Without tiles all blocks that are not the
// host's have lines. c.srcPlace is the bytes that go by lines; where the memory for packets of these is in the boards, local memory tells.
#if RED != RED_NONE && RANKS == 2
template <bool WHOLE>
__device__ __forceinline__ void divided(const Call &c, u64 e, Watch &w) {
  const u32 hosts = HOST_SENDERS + HOST_ADDERS;
  if (blockIdx.x < hosts) {
    byHost<WHOLE>(c, e, w);
    return;
  }
  Call part = c;
  part.block = blockIdx.x - hosts;
  part.bytes = c.bytes - c.srcPlace - hostBytes(c);
  const u32 lines = part.bytes == 0 ? gridDim.x - hosts : LINE_BLOCKS;
  if (part.block >= lines) {
    part.block -= lines;
    part.blocks = gridDim.x - hosts - lines;
    part.dstStride = c.srcStride;
    tiles<true, WHOLE>(part, e, w);
    return;
  }
  part.blocks = lines;
  part.src += part.bytes;
  part.dst += part.bytes;
  part.bytes = c.srcPlace;
  part.area = read8(c.local + HOST_AT + 16);
  part.half = read8(c.local + HOST_AT + 24);
  twice<WHOLE>(part, e, w);
}
#endif
