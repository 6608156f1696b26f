// D = FINISH(alpha * A x B + bias) on plain cores, for what the library refuses: types, batches without a single stride, and operands in
// host memory. Each block makes a tile of TILE x TILE elements, each thread 4 x 4 of them, spread so that neighbours write together.
// TYPE_A, TYPE_B, TYPE_D: as stored. SUM: what is added up in. LOAD_A(x), LOAD_B(x): from stored to SUM; FINISH(x, column, place): to
// TYPE_D. ROWS, COLUMNS, DEPTH. A_AT(plane, row, depth), B_AT(plane, depth, column), D_AT(plane, row, column): places of elements.
// A_ROWS_TOGETHER, B_ROWS_TOGETHER: 1 where elements of one row lie together, so that loads run along them. PLANES: of the batch.
// BIAS: the parameter for a bias with its comma, or nothing.
KERNEL void NAME(const TYPE_A* a, const TYPE_B* b, BIAS TYPE_D* d) {
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
      tileA[depthA][rowA] = insideA ? LOAD_A(a[A_AT(plane, row0 + rowA, start + depthA)]) : (SUM)0;
      const u32 depthB = B_ROWS_TOGETHER ? i / TILE : i % depthStep;
      const u32 columnB = B_ROWS_TOGETHER ? i % TILE : i / depthStep;
      const bool insideB = column0 + columnB < COLUMNS && start + depthB < DEPTH;
      tileB[depthB][columnB] = insideB ? LOAD_B(b[B_AT(plane, start + depthB, column0 + columnB)]) : (SUM)0;
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
      TYPE_D* place = d + D_AT(plane, row, column);
      *place = FINISH(sums[i][j], column, place);
    }
  }
}
