// Reduces COUNT elements for each of OUTPUTS, with a team of TEAM threads. INPUT, OUTPUT: types in memory; ACCUMULATOR:
// type of the computation. OUTPUT_AT(o) + REDUCED_AT(r): index of element r for output o. MAP(x) is reduced by
// OPERATION from INITIAL on; FINISH(x): the output for the result x. With SHIFTED, MAP and FINISH may use `shift`, the
// largest element.
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
  // Avoids infinity - infinity = NaN.
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
