// The K best of COUNT elements of each line, STEP apart, in order (BETTER(a, b): a goes before b; equal ones by their
// index, or with LAST from the end). A team of TEAM threads for each line. Each round finds the best element after the
// last one found, which needs no memory. K is small in models.
KERNEL void NAME(const INPUT *input TOP_PARAMETERS) {
  __shared__ ACCUMULATOR values[TEAM > 32 ? TEAM / 32 : 1];
  __shared__ int places[TEAM > 32 ? TEAM / 32 : 1];
  const u32 lane = threadIdx.x % TEAM;
  const INDEX line = (INDEX)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  if (line >= LINES) return;
  const INPUT *own = input + (LINE_AT(line));
  const INDEX out = OUTPUT_AT(line);
  ACCUMULATOR last = 0;
  int lastPlace = -1;
  for (int rank = 0; rank < K; rank++) {
    ACCUMULATOR best = 0;
    int place = -1;
    const auto take = [&](ACCUMULATOR value, int at) {
      if (at < 0) return;
      const bool ahead = LAST ? at > place : at < place;
      if (place < 0 || BETTER(value, best) || (value == best && ahead)) {
        best = value;
        place = at;
      }
    };
    for (int at = lane; at < COUNT; at += TEAM) {
      const ACCUMULATOR value = LOAD(own[(INDEX)at * STEP]);
      if (rank == 0 || BETTER(last, value) || (value == last && at > lastPlace)) take(value, at);
    }
#if TEAM >= 32
    for (int step = 16; step > 0; step >>= 1) {
      const ACCUMULATOR value = __shfl_xor_sync(0xffffffffu, best, step);
      take(value, __shfl_xor_sync(0xffffffffu, place, step));
    }
#endif
#if TEAM > 32
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      values[threadIdx.x / 32] = best;
      places[threadIdx.x / 32] = place;
    }
    __syncthreads();
    for (int warp = 0; warp < TEAM / 32; warp++) take(values[warp], places[warp]);
#endif
    last = best;
    lastPlace = place;
    if (lane == 0) {
      TOP_VALUE
      TOP_PLACE
    }
  }
}
