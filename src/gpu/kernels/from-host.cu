// Copies bytes from pinned host memory to a GPU's memory. A copy by the driver would queue behind all copies of weights
// that were submitted before it, whatever its stream: one engine of the GPU serves all streams.
KERNEL void fromHost(const u8* from, u8* to, i64 bytes) {
  const i64 threads = (i64)gridDim.x * blockDim.x;
  const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  const bool isAligned = (((u64)from | (u64)to) & (sizeof(Word) - 1)) == 0;
  const i64 words = isAligned ? bytes / (i64)sizeof(Word) : 0;
  // Several reads are under way at once, for the link takes over a microsecond for each.
#pragma unroll 4
  for (i64 word = thread; word < words; word += threads) ((Word*)to)[word] = ((const Word*)from)[word];
  for (i64 byte = words * (i64)sizeof(Word) + thread; byte < bytes; byte += threads) to[byte] = from[byte];
}
