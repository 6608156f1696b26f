// Running sums (or those of another OPERATION, whose neutral element is INITIAL) along LINES lines of LENGTH elements,
// STEP apart. EXCLUSIVE: without the element itself; REVERSED: from the end. TEAM 32: a warp for each line, 32 elements
// at a time; TEAM 1: a thread for each line.
KERNEL void NAME(const INPUT *input, OUTPUT *output) {
  const u32 lane = threadIdx.x % TEAM;
  const INDEX line = (INDEX)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
  if (line >= LINES) return;
  const INDEX start = LINE_AT(line);
  ACCUMULATOR carried = INITIAL;
  for (u32 first = 0; first < LENGTH; first += TEAM) {
    const u32 place = first + lane;
    const INDEX at = start + (INDEX)(REVERSED ? LENGTH - 1 - place : place) * STEP;
    ACCUMULATOR own = INITIAL;
    if (place < LENGTH) own = LOAD(input[at]);
#if TEAM == 32
    ACCUMULATOR running = own;
    for (int step = 1; step < 32; step <<= 1) {
      const ACCUMULATOR before = __shfl_up_sync(0xffffffffu, running, step);
      if (lane >= step) running = OPERATION::of(running, before);
    }
    const ACCUMULATOR without = __shfl_up_sync(0xffffffffu, running, 1);
    const ACCUMULATOR sum = EXCLUSIVE ? (lane == 0 ? carried : OPERATION::of(carried, without)) : OPERATION::of(carried, running);
    carried = OPERATION::of(carried, __shfl_sync(0xffffffffu, running, 31));
#else
    const ACCUMULATOR sum = EXCLUSIVE ? carried : OPERATION::of(carried, own);
    carried = OPERATION::of(carried, own);
#endif
    if (place < LENGTH) output[at] = STORE(sum);
  }
}
