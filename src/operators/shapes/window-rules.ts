/** Shapes of convolutions and pools. */
import { convolutionWindows, poolWindows } from './pool-windows.ts';
import { one, type Rule } from './rule.ts';

export const conv: Rule = ({ inputs: [x, weight], attribute }) => {
  if (x === undefined || weight === undefined || weight.dims.length < 3) return undefined;
  const kernel = attribute('kernel_shape', weight.dims.slice(2));
  if (kernel.length !== x.dims.length - 2) return undefined;
  const spatial = convolutionWindows(x.dims.slice(2), kernel, attribute);
  return one([x.dims[0]!, weight.dims[0]!, ...spatial.map(({ outputs }) => Math.max(0, outputs))]);
};

export const convTranspose: Rule = ({ inputs: [x, weight], attribute }) => {
  if (x === undefined || weight === undefined || weight.dims.length < 3) return undefined;
  const spatial = x.dims.slice(2);
  const kernel = attribute('kernel_shape', weight.dims.slice(2));
  const strides = attribute('strides', undefined) ?? spatial.map(() => 1);
  const dilations = attribute('dilations', undefined) ?? spatial.map(() => 1);
  const pads = attribute('pads', undefined) ?? [...spatial, ...spatial].map(() => 0);
  const extra = attribute('output_padding', undefined) ?? spatial.map(() => 0);
  const automatic = attribute('auto_pad', 'NOTSET');
  const sizes =
    attribute('output_shape', undefined) ??
    spatial.map((size, axis) => {
      const stride = strides[axis] ?? 1;
      const whole = (size - 1) * stride + (extra[axis] ?? 0) + ((kernel[axis] ?? 1) - 1) * (dilations[axis] ?? 1) + 1;
      // Cropped to size times stride if larger.
      if (automatic.startsWith('SAME')) return Math.min(whole, size * stride);
      return whole - (automatic === 'VALID' ? 0 : (pads[axis] ?? 0) + (pads[axis + spatial.length] ?? 0));
    });
  return one([x.dims[0]!, weight.dims[1]! * attribute('group', 1), ...sizes.slice(-spatial.length)]);
};

export const pool: Rule = ({ inputs: [x], attribute, outputCount }) => {
  const kernel = attribute('kernel_shape', undefined);
  if (x === undefined || kernel === undefined || kernel.length !== x.dims.length - 2) return undefined;
  const dims = [
    ...x.dims.slice(0, 2),
    ...poolWindows(x.dims.slice(2), kernel, attribute).map(({ outputs }) => outputs),
  ];
  return Array.from({ length: outputCount }, () => ({ dims }));
};

export const globalPool: Rule = ({ inputs: [x] }) => x && one(x.dims.map((size, axis) => (axis < 2 ? size : 1)));
