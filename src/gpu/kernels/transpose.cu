// Transposes matrices that are planes of a larger tensor, through tiles in shared memory, so that both reads and writes
// run along rows. WORD: type of an element. ROWS, COLUMNS: of the input's plane. ROW_STEP: elements from one row of the
// input to the next; COLUMN_STEP: from one row of the output to the next. INPUT_START(p), OUTPUT_START(p): the first
// element of plane p. LINES: rows of threads.
KERNEL void NAME(const WORD* input, WORD* output) {
  constexpr unsigned int tileSize = 32;
  constexpr unsigned int across = (COLUMNS + tileSize - 1) / tileSize;
  constexpr unsigned int down = (ROWS + tileSize - 1) / tileSize;
  // With one more column, threads that read a column access different banks.
  __shared__ WORD tile[tileSize][tileSize + 1];
  const unsigned int plane = blockIdx.x / (across * down);
  const unsigned int column0 = blockIdx.x % across * tileSize;
  const unsigned int row0 = blockIdx.x / across % down * tileSize;
  const INDEX from = INPUT_START(plane);
  const INDEX to = OUTPUT_START(plane);
#pragma unroll
  for (unsigned int step = 0; step < tileSize / LINES; step++) {
    const unsigned int line = step * LINES + threadIdx.y;
    const unsigned int row = row0 + line;
    const unsigned int column = column0 + threadIdx.x;
    if (row < ROWS && column < COLUMNS) tile[line][threadIdx.x] = input[from + (INDEX)row * ROW_STEP + column];
  }
  __syncthreads();
#pragma unroll
  for (unsigned int step = 0; step < tileSize / LINES; step++) {
    const unsigned int line = step * LINES + threadIdx.y;
    const unsigned int column = column0 + line;
    const unsigned int row = row0 + threadIdx.x;
    if (row < ROWS && column < COLUMNS) output[to + (INDEX)column * COLUMN_STEP + row] = tile[threadIdx.x][line];
  }
}
