// Reduces COUNT elements to each of OUTPUTS, by a team of TEAM threads. INPUT, OUTPUT: types in memory; ACCUMULATOR:
// the type computed in. OUTPUT_AT(o) + REDUCED_AT(r): where the r-th element for output o is. MAP(x): what is reduced;
// OPERATION, INITIAL: how; FINISH(x): what becomes of the result. With SHIFTED, MAP may use `shift`, the largest of the
// elements.
KERNEL void NAME(const INPUT *input, OUTPUT *output) {
  __shared__ ACCUMULATOR partial[TEAM > 32 ? TEAM / 32 : 1];
  const u32 lane = threadIdx.x % TEAM;
  const INDEX o = (INDEX)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  if (o >= OUTPUTS) return;
  const INPUT *own = input + (OUTPUT_AT(o));
#if SHIFTED
  ACCUMULATOR shift = LOWEST;
  for (INDEX r = lane; r < COUNT; r += TEAM) {
    shift = Maximum::of(shift, (ACCUMULATOR)LOAD(own[REDUCED_AT(r)]));
  }
  shift = teamReduce<TEAM, Maximum>(shift, partial);
  // Without this, infinity less itself would make a NaN of an infinite result.
  if (shift - shift != 0) shift = 0;
#endif
  ACCUMULATOR total = INITIAL;
#pragma unroll 4
  for (INDEX r = lane; r < COUNT; r += TEAM) {
    const ACCUMULATOR x = LOAD(own[REDUCED_AT(r)]);
    total = OPERATION::of(total, (ACCUMULATOR)(MAP(x)));
  }
  total = teamReduce<TEAM, OPERATION>(total, partial);
  if (lane == 0) output[o] = STORE(FINISH(total));
}
