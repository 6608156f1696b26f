// The index of the largest or smallest of COUNT elements, STEP apart (BETTER(a, b): a goes before b). Among equal ones
// the first, or with LAST the last. A team of TEAM threads for each output.
KERNEL void NAME(const INPUT *input, i64 *output) {
  __shared__ ACCUMULATOR values[TEAM > 32 ? TEAM / 32 : 1];
  __shared__ int places[TEAM > 32 ? TEAM / 32 : 1];
  const u32 lane = threadIdx.x % TEAM;
  const INDEX o = (INDEX)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  if (o >= OUTPUTS) return;
  const INPUT *own = input + (OUTPUT_AT(o));
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
  for (int at = lane; at < COUNT; at += TEAM) take(LOAD(own[(INDEX)at * STEP]), at);
#if TEAM >= 32
  for (int step = 16; step > 0; step >>= 1) {
    const ACCUMULATOR value = __shfl_xor_sync(0xffffffffu, best, step);
    take(value, __shfl_xor_sync(0xffffffffu, place, step));
  }
#endif
#if TEAM > 32
  if (threadIdx.x % 32 == 0) {
    values[threadIdx.x / 32] = best;
    places[threadIdx.x / 32] = place;
  }
  __syncthreads();
  for (int warp = 0; warp < TEAM / 32; warp++) take(values[warp], places[warp]);
#endif
  if (lane == 0) output[o] = place;
}
