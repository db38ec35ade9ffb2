// An allreduce between two ranks by three algorithms at once: the first data by tiles, the next by
// lines, and the rest through host memory, in parallel with the links. Without tiles, all blocks
// that are not the host's do lines. c.srcPlace is the bytes by lines; local memory has the location
// of their packets in the boards.
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
