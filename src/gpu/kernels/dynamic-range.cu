// PARTS pairs of the smallest and the largest of COUNT floats and 0: block p reads every PARTS-th run of BLOCK
// elements.
KERNEL void NAME(const INPUT *input, float *ranges) {
  __shared__ float partial[BLOCK / 32];
  float low = 0;
  float high = 0;
  for (INDEX i = (INDEX)blockIdx.x * BLOCK + threadIdx.x; i < COUNT; i += (INDEX)PARTS * BLOCK) {
    const float x = LOAD(input[i]);
    low = Minimum::of(low, x);
    high = Maximum::of(high, x);
  }
  low = teamReduce<BLOCK, Minimum>(low, partial);
  high = teamReduce<BLOCK, Maximum>(high, partial);
  if (threadIdx.x == 0) {
    ranges[2 * blockIdx.x] = low;
    ranges[2 * blockIdx.x + 1] = high;
  }
}
