// Pooling windows over up to three spatial axes, a thread to an output. SIZE_*: of the input; OUT_*: of the output; KERNEL_*, STRIDE_*,
// DILATION_*: of the window; BEFORE_*: padding in front; END_*: where the padded axis ends, counted from the input's first
// element. MAXIMUM: the largest element; else the mean, over the window's part within the padding or, without INCLUDE_PADDING,
// within the input.
KERNEL void NAME(const INPUT *input, OUTPUT *output) {
  const INDEX i = (INDEX)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= OUTPUTS) return;
  const int column0 = (int)(i % OUT_W) * STRIDE_W - BEFORE_W;
  const int row0 = (int)(i / OUT_W % OUT_H) * STRIDE_H - BEFORE_H;
  const int layer0 = (int)(i / (OUT_W * OUT_H) % OUT_D) * STRIDE_D - BEFORE_D;
  const INPUT *plane = input + i / (OUT_W * OUT_H * OUT_D) * ((INDEX)SIZE_D * SIZE_H * SIZE_W);
  ACCUMULATOR total = INITIAL;
  int count = 0;
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
          total = MAXIMUM ? Maximum::of(total, x) : (ACCUMULATOR)(total + x);
        }
        if (inside || INCLUDE_PADDING) count++;
      }
    }
  }
  output[i] = STORE(MAXIMUM || count == 0 ? total : (ACCUMULATOR)(total / count));
}
