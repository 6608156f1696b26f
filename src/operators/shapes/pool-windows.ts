import type { AttributeReader } from '../../onnx/index.ts';

/**
 * A pool's windows along each spatial axis as in ONNX Runtime's kernels. ONNX's own inference differs: with `auto_pad` it ignores
 * dilations and negative margins, and with VALID it keeps a last window that begins after the input.
 */
export function poolWindows(sizes: readonly number[], kernel: readonly number[], attribute: AttributeReader) {
  const strides = attribute('strides', []);
  const dilations = attribute('dilations', []);
  const pads = attribute('pads', []);
  const automatic = attribute('auto_pad', 'NOTSET');
  const isCeiled = attribute('ceil_mode', 0) === 1;
  return sizes.map((size, axis) => {
    const [stride, dilation, length] = [strides[axis] ?? 1, dilations[axis] ?? 1, kernel[axis]!];
    let [before, after] = [pads[axis] ?? 0, pads[axis + sizes.length] ?? 0];
    if (automatic === 'VALID') before = after = 0;
    else if (automatic.startsWith('SAME')) {
      const total = (Math.ceil(size / stride) - 1) * stride + length - size;
      before = Math.trunc((automatic === 'SAME_LOWER' ? total + 1 : total) / 2);
      after = total - before;
    }
    const steps = (size + before + after - dilation * (length - 1) - 1) / stride;
    let outputs = (isCeiled ? Math.ceil(steps) : Math.trunc(steps)) + 1;
    // The last window begins within the input or the margin in front of it.
    if (isCeiled && (outputs - 1) * stride >= size + before) outputs--;
    return {
      size,
      outputs,
      kernel: length,
      stride,
      dilation,
      /** Negative: the first window begins inside the input. */
      before,
      /** End of the padded axis, counted from the input's first element. */
      end: size + after,
    };
  });
}

/** The windows of a convolution. A dilated kernel counts as a larger one: unlike a pool's, its margins include dilations. */
export function convolutionWindows(sizes: readonly number[], kernel: readonly number[], attribute: AttributeReader) {
  const dilations = attribute('dilations', []);
  const extents = kernel.map((size, axis) => (size - 1) * (dilations[axis] ?? 1) + 1);
  return poolWindows(sizes, extents, (name, otherwise) => attribute(name === 'dilations' ? '' : name, otherwise));
}
