/** Activations that attributes of recurrent cells name. */
import { Unsupported, floatLiteral } from '../../../operators/index.ts';

interface Activation {
  /** Defaults of its parameters, alpha and beta, in this order. If ONNX has no default, it is ONNX Runtime's 0. */
  readonly defaults?: readonly number[];
  /** C expression over x; `math` gives a function's name for its type. */
  readonly of: (x: string, math: (name: string) => string, parameters: readonly string[]) => string;
}

const largest = 3.4028234663852886e38;
const clamped = (x: string, low: string, high: string): string =>
  `(${x} < ${low} ? ${low} : ${x} > ${high} ? ${high} : ${x})`;

const activations: Readonly<Record<string, Activation>> = {
  affine: { defaults: [0, 0], of: (x, _, [alpha, beta]) => `(${alpha} * ${x} + ${beta})` },
  clip: { defaults: [-largest, largest], of: (x, _, [low = '', high = '']) => clamped(x, low, high) },
  elu: { defaults: [1], of: (x, math, [alpha]) => `(${x} < 0 ? ${alpha} * (${math('exp')}(${x}) - 1) : ${x})` },
  hardsigmoid: {
    defaults: [0.2, 0.5],
    of: (x, _, [alpha, beta]) => clamped(`(${alpha} * ${x} + ${beta})`, '0', '1'),
  },
  leakyrelu: { defaults: [0.01], of: (x, _, [alpha]) => `(${x} < 0 ? ${alpha} * ${x} : ${x})` },
  relu: { of: (x) => `(${x} < 0 ? 0 : ${x})` },
  scaledtanh: { defaults: [0, 0], of: (x, math, [alpha, beta]) => `(${alpha} * ${math('tanh')}(${beta} * ${x}))` },
  sigmoid: { of: (x, math) => `(1 / (1 + ${math('exp')}(-${x})))` },
  // Overflows for the same x as ONNX Runtime's.
  softplus: { of: (x, math) => `${math('log1p')}(${math('exp')}(${x}))` },
  softsign: { of: (x, math) => `(${x} / (1 + ${math('fabs')}(${x})))` },
  tanh: { of: (x, math) => `${math('tanh')}(${x})` },
  thresholdedrelu: { defaults: [0], of: (x, _, [alpha]) => `(${x} > ${alpha} ? ${x} : 0)` },
};

/**
 * C expression of an activation.
 *
 * @param name in upper or lower case
 * @param x a variable, or an expression in parentheses
 * @param parameters given ones; defaults are used for the others
 * @throws Unsupported for a name that ONNX does not have
 */
export function activated(
  name: string,
  x: string,
  math: (name: string) => string,
  parameters: readonly (number | undefined)[] = [],
): string {
  const known = activationOf(name);
  return known.of(
    x,
    math,
    (known.defaults ?? []).map((otherwise, index) => floatLiteral(parameters[index] ?? otherwise)),
  );
}

/** Number of an activation's parameters. @throws Unsupported for a name that ONNX does not have */
export const parameterCount = (name: string): number => activationOf(name).defaults?.length ?? 0;

function activationOf(name: string): Activation {
  const known = Object.hasOwn(activations, name.toLowerCase()) ? activations[name.toLowerCase()] : undefined;
  if (known === undefined) throw new Unsupported(`its activation '${name}' is not covered`);
  return known;
}
