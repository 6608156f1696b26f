// D = FINISH(A x B) without tensor cores, for products that the library refuses: other types, batches without a single
// stride, operands in host memory, and factors that are computed while they are read. Each block makes a tile of TILE x
// TILE elements, each thread 4 x 4 of them, spread so that neighbours write together. PARAMETERS: of the kernel. SUM:
// type of the sums. A_VALUE(plane, row, depth), B_VALUE(plane, depth, column): elements of the factors. FINISH(x,
// plane, row, column): the statement that stores a sum x. ROWS, COLUMNS, DEPTH. A_ROWS_TOGETHER, B_ROWS_TOGETHER: 1 if
// the elements of a row are adjacent, so that loads run along rows.
KERNEL void NAME(PARAMETERS) {
  constexpr u32 depthStep = 16;
  constexpr u32 across = TILE / 4;
  constexpr u32 threads = across * across;
  constexpr u32 tilesAcross = (COLUMNS + TILE - 1) / TILE;
  constexpr u32 tilesDown = (ROWS + TILE - 1) / TILE;
  __shared__ SUM tileA[depthStep][TILE + 1];
  __shared__ SUM tileB[depthStep][TILE + 1];
  const u32 plane = blockIdx.x / (tilesAcross * tilesDown);
  const u32 row0 = blockIdx.x / tilesAcross % tilesDown * TILE;
  const u32 column0 = blockIdx.x % tilesAcross * TILE;
  const u32 threadRow = threadIdx.x / across;
  const u32 threadColumn = threadIdx.x % across;
  SUM sums[4][4] = {};
  for (u32 start = 0; start < DEPTH; start += depthStep) {
    for (u32 i = threadIdx.x; i < TILE * depthStep; i += threads) {
      const u32 depthA = A_ROWS_TOGETHER ? i % depthStep : i / TILE;
      const u32 rowA = A_ROWS_TOGETHER ? i / depthStep : i % TILE;
      const bool insideA = row0 + rowA < ROWS && start + depthA < DEPTH;
      tileA[depthA][rowA] = insideA ? (SUM)(A_VALUE(plane, row0 + rowA, start + depthA)) : (SUM)0;
      const u32 depthB = B_ROWS_TOGETHER ? i / TILE : i % depthStep;
      const u32 columnB = B_ROWS_TOGETHER ? i % TILE : i / depthStep;
      const bool insideB = column0 + columnB < COLUMNS && start + depthB < DEPTH;
      tileB[depthB][columnB] = insideB ? (SUM)(B_VALUE(plane, start + depthB, column0 + columnB)) : (SUM)0;
    }
    __syncthreads();
    for (u32 depth = 0; depth < depthStep; depth++) {
      SUM left[4];
      SUM right[4];
      for (u32 i = 0; i < 4; i++) {
        left[i] = tileA[depth][threadRow + i * across];
        right[i] = tileB[depth][threadColumn + i * across];
      }
      for (u32 i = 0; i < 4; i++) {
        for (u32 j = 0; j < 4; j++) sums[i][j] += left[i] * right[j];
      }
    }
    __syncthreads();
  }
  for (u32 i = 0; i < 4; i++) {
    for (u32 j = 0; j < 4; j++) {
      const u32 row = row0 + threadRow + i * across;
      const u32 column = column0 + threadColumn + j * across;
      if (row >= ROWS || column >= COLUMNS) continue;
      FINISH(sums[i][j], plane, row, column);
    }
  }
}
