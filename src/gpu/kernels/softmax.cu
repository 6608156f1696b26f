// Softmax along rows of COLUMNS elements, STEP apart, with a team of TEAM threads for each row. Three passes: the
// largest element, the sum of the exponentials of the distances to it, the shares. ELEMENT(at, row, column): an input.
// With HELD, threads keep their elements in registers between the passes; else they read them again. LOGARITHM: of the
// shares. ZERO_ROWS: a row of minus infinities becomes zeros instead of NaN. MASK_PARAMETER: further parameters.
KERNEL void NAME(const INPUT *input MASK_PARAMETER, OUTPUT *output) {
  __shared__ ACCUMULATOR partial[TEAM > 32 ? TEAM / 32 : 1];
  const u32 lane = threadIdx.x % TEAM;
  const INDEX row = (INDEX)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  if (row >= ROWS) return;
  const INDEX start = ROW_AT(row);
  // A macro in a pragma is expanded at the end of the loop, and may be undefined by then.
  constexpr int unroll = UNROLL;
  constexpr u32 rounds = (COLUMNS + TEAM - 1) / TEAM;
  ACCUMULATOR held[HELD ? rounds : 1];

  ACCUMULATOR largest = LOWEST;
#pragma unroll unroll
  for (u32 round = 0; round < rounds; round++) {
    const u32 column = round * TEAM + lane;
    if (column >= COLUMNS) continue;
    const INDEX at = start + (INDEX)column * STEP;
    const ACCUMULATOR x = ELEMENT(at, row, column);
    if (HELD) held[round] = x;
    largest = Maximum::of(largest, x);
  }
  largest = teamReduce<TEAM, Maximum>(largest, partial);
  if (ZERO_ROWS && largest == LOWEST) largest = 0;

  ACCUMULATOR sum = 0;
#pragma unroll unroll
  for (u32 round = 0; round < rounds; round++) {
    const u32 column = round * TEAM + lane;
    if (column >= COLUMNS) continue;
    const INDEX at = start + (INDEX)column * STEP;
    const ACCUMULATOR distance = (HELD ? held[round] : (ELEMENT(at, row, column))) - largest;
    const ACCUMULATOR exponential = EXP(distance);
    if (HELD) held[round] = LOGARITHM ? distance : exponential;
    sum += exponential;
  }
  sum = teamReduce<TEAM, Sum>(sum, partial);

  const ACCUMULATOR whole = LOGARITHM ? LOG(sum) : ZERO_ROWS && sum == 0 ? 0 : 1 / sum;
#pragma unroll unroll
  for (u32 round = 0; round < rounds; round++) {
    const u32 column = round * TEAM + lane;
    if (column >= COLUMNS) continue;
    const INDEX at = start + (INDEX)column * STEP;
    ACCUMULATOR x = 0;
    if (HELD) {
      x = held[round];
    } else {
      x = (ELEMENT(at, row, column)) - largest;
      if (!LOGARITHM) x = EXP(x);
    }
    output[at] = STORE(LOGARITHM ? x - whole : x * whole);
  }
}
