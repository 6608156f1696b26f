// Normalises rows of COLUMNS contiguous elements, with a team of TEAM threads for each: (x - mean) / sqrt(variance +
// EPSILON), scaled and shifted. With CENTERED 0 the mean counts as 0. ELEMENT(at, row, column): x, which may be a sum
// of several inputs. WEIGHTED(y, at, row, column): the result for a normalised y. KEEP_SUM(at, x), KEEP_MEAN(row, x),
// KEEP_INVERSE(row, x): further outputs. With HELD, threads keep their elements in registers between the passes; else
// they read them again.
KERNEL void NAME(PARAMETERS) {
  __shared__ ACCUMULATOR partial[TEAM > 32 ? TEAM / 32 : 1];
  const u32 lane = threadIdx.x % TEAM;
  const INDEX row = (INDEX)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  if (row >= ROWS) return;
  const INDEX start = row * COLUMNS;
  // A macro in a pragma is expanded at the end of the loop, and may be undefined by then.
  constexpr int unroll = UNROLL;
  constexpr u32 rounds = (COLUMNS + TEAM - 1) / TEAM;
  ACCUMULATOR held[HELD ? rounds : 1];

  ACCUMULATOR mean = 0;
#pragma unroll unroll
  for (u32 round = 0; round < rounds; round++) {
    const u32 column = round * TEAM + lane;
    if (column >= COLUMNS) continue;
    const INDEX at = start + column;
    const ACCUMULATOR x = ELEMENT(at, row, column);
    if (HELD) held[round] = x;
    mean += x;
  }
  if (CENTERED) mean = teamReduce<TEAM, Sum>(mean, partial) / COLUMNS;
  else mean = 0;

  // A second pass, because (mean of squares) - (square of mean) loses digits if the mean is large.
  ACCUMULATOR variance = 0;
#pragma unroll unroll
  for (u32 round = 0; round < rounds; round++) {
    const u32 column = round * TEAM + lane;
    if (column >= COLUMNS) continue;
    const INDEX at = start + column;
    const ACCUMULATOR distance = (HELD ? held[round] : (ELEMENT(at, row, column))) - mean;
    variance += distance * distance;
  }
  variance = teamReduce<TEAM, Sum>(variance, partial) / COLUMNS;
  const ACCUMULATOR inverse = 1 / SQRT(variance + (ACCUMULATOR)EPSILON);

#pragma unroll unroll
  for (u32 round = 0; round < rounds; round++) {
    const u32 column = round * TEAM + lane;
    if (column >= COLUMNS) continue;
    const INDEX at = start + column;
    const ACCUMULATOR x = HELD ? held[round] : (ELEMENT(at, row, column));
    const ACCUMULATOR y = (x - mean) * inverse;
    output[at] = STORE(WEIGHTED(y, at, row, column));
    KEEP_SUM(at, x);
  }
  if (lane == 0) {
    KEEP_MEAN(row, mean);
    KEEP_INVERSE(row, inverse);
  }
}
