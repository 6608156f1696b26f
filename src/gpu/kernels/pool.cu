// Pools windows over up to three spatial axes, a thread for each output. SIZE_*: of the input; OUT_*: of the output;
// KERNEL_*, STRIDE_*, DILATION_*: of the window; BEFORE_*: padding in front; END_*: end of the padded axis, counted
// from the input's first element. With MAXIMUM the largest element; else FINISH(total, count) of the sum of MAP(x),
// where count counts the window's elements in the padded input or, without INCLUDE_PADDING, in the input.
// WHERE_PARAMETER, WHERE(place): a further output with the index of the largest element, by the strides STEP_*.
KERNEL void NAME(const INPUT *input, OUTPUT *output WHERE_PARAMETER) {
  const INDEX i = (INDEX)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= OUTPUTS) return;
  const int column0 = (int)(i % OUT_W) * STRIDE_W - BEFORE_W;
  const int row0 = (int)(i / OUT_W % OUT_H) * STRIDE_H - BEFORE_H;
  const int layer0 = (int)(i / (OUT_W * OUT_H) % OUT_D) * STRIDE_D - BEFORE_D;
  const INPUT *plane = input + i / (OUT_W * OUT_H * OUT_D) * ((INDEX)SIZE_D * SIZE_H * SIZE_W);
  ACCUMULATOR total = INITIAL;
  int count = 0;
  i64 place = -1;
  for (int d = 0; d < KERNEL_D; d++) {
    const int layer = layer0 + d * DILATION_D;
    if (layer >= END_D) break;
    for (int h = 0; h < KERNEL_H; h++) {
      const int row = row0 + h * DILATION_H;
      if (row >= END_H) break;
#pragma unroll
      for (int w = 0; w < KERNEL_W; w++) {
        const int column = column0 + w * DILATION_W;
        if (column >= END_W) break;
        const bool inside = layer >= 0 && layer < SIZE_D && row >= 0 && row < SIZE_H && column >= 0 && column < SIZE_W;
        if (inside) {
          const ACCUMULATOR x = LOAD(plane[((INDEX)layer * SIZE_H + row) * SIZE_W + column]);
          if (!MAXIMUM) total += MAP(x);
          else if (place < 0 || x > total) {
            total = x;
            place = (i64)layer * STEP_D + (i64)row * STEP_H + (i64)column * STEP_W;
          }
        }
        if (inside || INCLUDE_PADDING) count++;
      }
    }
  }
  output[i] = STORE(MAXIMUM ? total : (ACCUMULATOR)(FINISH(total, count)));
  WHERE(i / (OUT_W * OUT_H * OUT_D) * ((i64)SIZE_D * SIZE_H * SIZE_W) + place);
}
