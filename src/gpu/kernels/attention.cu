// Attention in one launch: softmax(scores of Q x transposed K) x V, without the scores in memory. Each block computes
// TILE_ROWS rows of queries of one head, and loops over the keys in tiles of TILE_KEYS. Shares and sums are relative to
// the largest score so far, and are rescaled when a larger one comes (Milakov and Gimelshein 2018; Dao et al. 2022).
// Sixteen neighbouring threads own a row: they make its scores and write its results, four columns at a time.
//
// QUERIES, KEYS, SIZE, VALUE_SIZE, HEADS, GROUP (heads that share keys). Q_AT(b, h), K_AT(b, h), V_AT(b, h), Y_AT(b,
// h): the first element of a head. Q_ROW, K_ROW, V_ROW, Y_ROW: elements from row to row. Q_WIDE and so on: 1 if four
// elements are read at once. Q_LOAD(x) and so on: from memory to float, Y_STORE(x) back. SCORE(x, b, h, i, j): the
// score of a product x. EMPTY(sum): whether a row whose shares have this sum becomes zeros.
KERNEL void NAME(const Q_TYPE *qHeads, const K_TYPE *kHeads, const V_TYPE *vHeads PARAMETERS, Y_TYPE *yHeads) {
  typedef Vector<float, 4> Quad;
  constexpr u32 lanes = 16;
  constexpr u32 threads = 128;
  constexpr u32 down = threads / lanes;
  constexpr u32 rowsEach = TILE_ROWS / down;
  constexpr u32 keysEach = TILE_KEYS / lanes;
  constexpr u32 quads = (SIZE + 3) / 4;
  constexpr u32 valueQuads = (VALUE_SIZE + 3) / 4;
  constexpr u32 quadsEach = (valueQuads + lanes - 1) / lanes;
  constexpr u32 tilesDown = (QUERIES + TILE_ROWS - 1) / TILE_ROWS;
  // Odd numbers of 16 bytes, so that neighbouring rows begin in different banks.
  __shared__ Quad queries[TILE_ROWS][quads | 1];
  __shared__ Quad tile[TILE_KEYS][(quads > valueQuads ? quads : valueQuads) | 1];
  __shared__ Quad shares[TILE_ROWS][(TILE_KEYS | 16) / 4];
  const u32 lane = threadIdx.x % lanes;
  const u32 first = threadIdx.x / lanes;
  const u32 row0 = blockIdx.x % tilesDown * TILE_ROWS;
  const u32 head = blockIdx.x / tilesDown % HEADS;
  const u32 item = blockIdx.x / tilesDown / HEADS;
  const Q_TYPE *q = qHeads + (Q_AT((i64)item, (i64)head));
  const K_TYPE *k = kHeads + (K_AT((i64)item, (i64)(head / GROUP)));
  const V_TYPE *v = vHeads + (V_AT((i64)item, (i64)(head / GROUP)));
  Y_TYPE *y = yHeads + (Y_AT((i64)item, (i64)head));

  for (u32 i = threadIdx.x; i < TILE_ROWS * quads; i += threads) {
    const u32 row = i / quads;
    const u32 column = i % quads * 4;
    Quad loaded = {};
    if (row0 + row < QUERIES) {
      const Q_TYPE *from = q + (u64)(row0 + row) * Q_ROW + column;
      if (Q_WIDE) {
        const Vector<Q_TYPE, 4> four = *reinterpret_cast<const Vector<Q_TYPE, 4> *>(from);
        for (u32 e = 0; e < 4; e++) loaded.at[e] = Q_LOAD(four.at[e]);
      } else {
        for (u32 e = 0; e < 4 && column + e < SIZE; e++) loaded.at[e] = Q_LOAD(from[e]);
      }
    }
    queries[row][i % quads] = loaded;
  }

  Quad results[rowsEach][quadsEach] = {};
  float sums[rowsEach] = {};
  float largest[rowsEach];
  for (u32 i = 0; i < rowsEach; i++) largest[i] = -F32_INFINITY;

  for (u32 start = 0; start < KEYS; start += TILE_KEYS) {
    for (u32 i = threadIdx.x; i < TILE_KEYS * quads; i += threads) {
      const u32 key = start + i / quads;
      const u32 column = i % quads * 4;
      Quad loaded = {};
      if (key < KEYS) {
        const K_TYPE *from = k + (u64)key * K_ROW + column;
        if (K_WIDE) {
          const Vector<K_TYPE, 4> four = *reinterpret_cast<const Vector<K_TYPE, 4> *>(from);
          for (u32 e = 0; e < 4; e++) loaded.at[e] = K_LOAD(four.at[e]);
        } else {
          for (u32 e = 0; e < 4 && column + e < SIZE; e++) loaded.at[e] = K_LOAD(from[e]);
        }
      }
      tile[i / quads][i % quads] = loaded;
    }
    __syncthreads();
    float scores[rowsEach][keysEach] = {};
#pragma unroll 4
    for (u32 quad = 0; quad < quads; quad++) {
      Quad left[rowsEach];
      Quad right[keysEach];
      for (u32 i = 0; i < rowsEach; i++) left[i] = queries[first + i * down][quad];
      for (u32 j = 0; j < keysEach; j++) right[j] = tile[lane + j * lanes][quad];
      for (u32 i = 0; i < rowsEach; i++) {
        for (u32 j = 0; j < keysEach; j++) {
          for (u32 e = 0; e < 4; e++) scores[i][j] += left[i].at[e] * right[j].at[e];
        }
      }
    }
    // All threads have read the keys: the values overwrite them.
    __syncthreads();
    for (u32 i = threadIdx.x; i < TILE_KEYS * valueQuads; i += threads) {
      const u32 key = start + i / valueQuads;
      const u32 column = i % valueQuads * 4;
      Quad loaded = {};
      if (key < KEYS) {
        const V_TYPE *from = v + (u64)key * V_ROW + column;
        if (V_WIDE) {
          const Vector<V_TYPE, 4> four = *reinterpret_cast<const Vector<V_TYPE, 4> *>(from);
          for (u32 e = 0; e < 4; e++) loaded.at[e] = V_LOAD(four.at[e]);
        } else {
          for (u32 e = 0; e < 4 && column + e < VALUE_SIZE; e++) loaded.at[e] = V_LOAD(from[e]);
        }
      }
      tile[i / valueQuads][i % valueQuads] = loaded;
    }
    for (u32 i = 0; i < rowsEach; i++) {
      const u32 row = row0 + first + i * down;
      float top = largest[i];
      for (u32 j = 0; j < keysEach; j++) {
        const u32 key = start + lane + j * lanes;
        float score = -F32_INFINITY;
        if (row < QUERIES && key < KEYS) score = SCORE(scores[i][j], item, head, row, key);
        scores[i][j] = score;
        top = Maximum::of(top, score);
      }
      for (int step = lanes / 2; step > 0; step >>= 1) {
        top = Maximum::of(top, __shfl_xor_sync(0xffffffffu, top, step));
      }
      // Avoids infinity - infinity = NaN while all scores so far are minus infinity.
      const float level = top == -F32_INFINITY ? 0.0f : top;
      const float kept = expf(largest[i] - level);
      largest[i] = top;
      sums[i] *= kept;
      for (u32 c = 0; c < quadsEach; c++) {
        for (u32 e = 0; e < 4; e++) results[i][c].at[e] *= kept;
      }
      float *share = reinterpret_cast<float *>(shares[first + i * down]);
      for (u32 j = 0; j < keysEach; j++) {
        const float x = expf(scores[i][j] - level);
        sums[i] += x;
        share[lane + j * lanes] = x;
      }
    }
    __syncthreads();
#pragma unroll 2
    for (u32 keys = 0; keys < TILE_KEYS / 4; keys++) {
      Quad share[rowsEach];
      for (u32 i = 0; i < rowsEach; i++) share[i] = shares[first + i * down][keys];
      for (u32 key = 0; key < 4; key++) {
        for (u32 c = 0; c < quadsEach; c++) {
          const u32 quad = lane + c * lanes;
          if (quad >= valueQuads) continue;
          const Quad value = tile[keys * 4 + key][quad];
          for (u32 i = 0; i < rowsEach; i++) {
            for (u32 e = 0; e < 4; e++) results[i][c].at[e] += share[i].at[key] * value.at[e];
          }
        }
      }
    }
    // The next keys overwrite the values.
    __syncthreads();
  }

  for (u32 i = 0; i < rowsEach; i++) {
    const u32 row = row0 + first + i * down;
    float sum = sums[i];
    for (int step = lanes / 2; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (row >= QUERIES) continue;
    const bool empty = EMPTY(sum);
    const float whole = 1.0f / sum;
    for (u32 c = 0; c < quadsEach; c++) {
      const u32 column = (lane + c * lanes) * 4;
      if (column >= VALUE_SIZE) continue;
      Y_TYPE *to = y + (u64)row * Y_ROW + column;
      Vector<Y_TYPE, 4> four;
      for (u32 e = 0; e < 4; e++) four.at[e] = Y_STORE(empty ? 0.0f : results[i][c].at[e] * whole);
      if (Y_WIDE) {
        *reinterpret_cast<Vector<Y_TYPE, 4> *>(to) = four;
      } else {
        for (u32 e = 0; e < 4 && column + e < VALUE_SIZE; e++) to[e] = four.at[e];
      }
    }
  }
}
