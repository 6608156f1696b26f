/** Reductions over any axes, by teams of threads along rows, or down columns. */
import { floats, numbers, requireDatatype, accumulatorOf } from '../../../operators/index.ts';
import { elementCount, type DataType } from '../../../tensor/index.ts';
import type { Emitter, Value } from '../types.ts';
import { axisOf, collapse, coordinates, indexType, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { forEachElement, written } from '../common/elements.ts';
import { read, write } from '../common/launching.ts';
import { alone, launchTeams, mathOf, teamForRows, teamKernel, typeDefinitions } from '../common/teams.ts';

/** How elements are reduced to one. */
export interface Reduction {
  readonly operation: 'Sum' | 'Product' | 'Maximum' | 'Minimum';
  /** C expression over x. */
  readonly map?: (math: (name: string) => string) => string;
  /** C expression of the result over x, the reduction of `count` elements. */
  readonly finish?: (math: (name: string) => string, count: number) => string;
  /** The largest element is found first, and `map` and `finish` may use it as `shift`. */
  readonly shifted?: boolean;
  /** Replacements for integers. */
  readonly ofWhole?: Pick<Reduction, 'map' | 'finish'>;
  /** Roots and logarithms: those of integers are computed in double and truncated. */
  readonly floatsOnly?: boolean;
  /** Also covers BOOL. */
  readonly ordering?: boolean;
}

export const reductions = {
  ReduceSum: { operation: 'Sum' },
  // ONNX Runtime's mean of no elements is 0.
  ReduceMean: { operation: 'Sum', finish: (_, count) => (count === 0 ? 'x' : `x / ${count}`) },
  ReduceProd: { operation: 'Product' },
  ReduceMax: { operation: 'Maximum', ordering: true },
  ReduceMin: { operation: 'Minimum', ordering: true },
  ReduceL1: { operation: 'Sum', map: () => '(x < 0 ? -x : x)' },
  ReduceL2: { operation: 'Sum', map: () => 'x * x', finish: (math) => `${math('sqrt')}(x)`, floatsOnly: true },
  ReduceSumSquare: { operation: 'Sum', map: () => 'x * x' },
  ReduceLogSum: { operation: 'Sum', finish: (math) => `${math('log')}(x)`, floatsOnly: true },
  ReduceLogSumExp: {
    operation: 'Sum',
    map: (math) => `${math('exp')}(x - shift)`,
    finish: (math) => `${math('log')}(x) + shift`,
    shifted: true,
    floatsOnly: true,
    // For integers ONNX Runtime truncates each exponential and the logarithm, so it counts the largest elements.
    ofWhole: { map: () => 'x == shift', finish: () => 'trunc(log(x)) + shift' },
  },
} as const satisfies Record<string, Reduction>;

const limits: Readonly<Record<string, readonly [lowest: string, highest: string]>> = {
  float: ['(-F32_INFINITY)', 'F32_INFINITY'],
  double: ['(-F64_INFINITY)', 'F64_INFINITY'],
  i32: ['(-2147483647 - 1)', '2147483647'],
  i64: ['(-9223372036854775807ll - 1)', '9223372036854775807ll'],
};

/**
 * The C type of a reduction. Smaller integers are reduced as i32: C computes with them so, and a shuffle moves 32 bits.
 */
export function reducedType(datatype: DataType): string {
  const accumulator = accumulatorOf(datatype);
  return limits[accumulator] === undefined ? 'i32' : accumulator;
}

export function initialOf(operation: Reduction['operation'], accumulator: string): string {
  const [lowest, highest] = limits[accumulator]!;
  return { Sum: '0', Product: '1', Maximum: lowest, Minimum: highest }[operation];
}

/**
 * Several threads share a column if it has at least `longColumn` elements and there are fewer than `manyOutputs`
 * columns.
 */
const longColumn = 32;
const manyOutputs = 65_536;

/**
 * Reduces `axes` of the input.
 *
 * @throws Unsupported for a datatype that the reduction does not cover
 */
export function emitReduction(
  emitter: Emitter,
  hint: string,
  general: Reduction,
  given: Value,
  axes: readonly number[],
): void {
  requireDatatype(given, general.ordering === true ? [...numbers, 'BOOL'] : numbers);
  const reduction = floats.includes(given.datatype) ? general : { ...general, ...general.ofWhole };
  const reduced = new Set(axes.map((axis) => axisOf(axis, given.shape.length)));
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const input = asDeclared(emitter, given);
  const accumulator =
    reduction.floatsOnly === true && !floats.includes(input.datatype) ? 'double' : reducedType(input.datatype);
  const math = mathOf(accumulator);
  const strides = stridesOf(input.shape);
  const walk = (keep: boolean) => {
    const chosen = input.shape.flatMap((_, axis) => (reduced.has(axis) === keep ? [] : [axis]));
    const dimensions = collapse(
      chosen.map((axis) => input.shape[axis]!),
      chosen.map((axis) => strides[axis]!),
    );
    return { sizes: dimensions.map(({ size }) => size), steps: dimensions.map(({ steps }) => steps[0]!) };
  };
  const outer = walk(true);
  const inner = walk(false);
  const count = elementCount(inner.sizes);
  const finish = reduction.finish?.(math, count) ?? 'x';
  if (count === 0) {
    emitEmpty(emitter, hint, reduction, output, finish, accumulator);
    return;
  }
  const definitions = {
    ...typeDefinitions(input.datatype, output.datatype, accumulator),
    INDEX: indexType(input.elements),
    COUNT: `${count}u`,
    OUTPUTS: `${output.elements}u`,
    OPERATION: reduction.operation,
    INITIAL: initialOf(reduction.operation, accumulator),
    LOWEST: initialOf('Maximum', accumulator),
    SHIFTED: reduction.shifted === true ? 1 : 0,
    'MAP(x)': reduction.map?.(math) ?? 'x',
    'FINISH(x)': `(${finish.replaceAll(/\bx\b/g, '(x)')})`,
    'OUTPUT_AT(o)': weightedSum(coordinates('(o)', outer.sizes), outer.steps),
    'REDUCED_AT(r)': weightedSum(coordinates('(r)', inner.sizes), inner.steps),
  };
  const alongRows = inner.steps.at(-1) === 1;
  if (!alongRows && reduction.shifted !== true && count >= longColumn && output.elements < manyOutputs) {
    const lines = count >= 8 * longColumn ? 16 : 4;
    const kernel = emitter.kernel(hint, teamKernel('reduce-columns', { ...definitions, LINES: lines }));
    emitter.launch({
      kernel,
      grid: [Math.ceil(output.elements / 32)],
      block: [32, lines],
      arguments: [read(input.buffer), write(output.buffer)],
    });
    return;
  }
  launchTeams(emitter, hint, 'reduce', {
    team: alongRows ? teamForRows(output.elements, count) : alone,
    rows: output.elements,
    definitions,
    arguments: [read(input.buffer), write(output.buffer)],
  });
}

/** The reduction of no elements: `finish` of the initial value. */
function emitEmpty(
  emitter: Emitter,
  hint: string,
  reduction: Reduction,
  output: Value,
  finish: string,
  accumulator: string,
): void {
  const tensors = { output: written(output) };
  forEachElement(emitter, hint, output.elements, tensors, (of) => [
    `const ${accumulator} shift = ${reduction.shifted === true ? 0 : initialOf('Sum', accumulator)};`,
    `const ${accumulator} x = ${initialOf(reduction.operation, accumulator)};`,
    '(void)shift;',
    of.output.set('i', `(${of.output.computed})(${finish})`),
  ]);
}
