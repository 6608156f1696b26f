// Like reduce.cu, for outputs whose neighbours read neighbouring elements. A block has 32 outputs by LINES lines, and a
// line reads every LINES-th element, so that few long columns keep the device busy too.
KERNEL void NAME(const INPUT *input, OUTPUT *output) {
  __shared__ ACCUMULATOR partial[LINES][32];
  const INDEX o = (INDEX)blockIdx.x * 32 + threadIdx.x;
  ACCUMULATOR total = INITIAL;
  if (o < OUTPUTS) {
    const INPUT *own = input + (OUTPUT_AT(o));
#pragma unroll 4
    for (INDEX r = threadIdx.y; r < COUNT; r += LINES) {
      const ACCUMULATOR x = LOAD(own[REDUCED_AT(r)]);
      total = OPERATION::of(total, (ACCUMULATOR)(MAP(x)));
    }
  }
  partial[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y == 0 && o < OUTPUTS) {
    for (u32 line = 1; line < LINES; line++) total = OPERATION::of(total, partial[line][threadIdx.x]);
    output[o] = STORE(FINISH(total));
  }
}
