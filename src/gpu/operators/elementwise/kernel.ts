/** One kernel for a tree of elementwise nodes: shapes and strides are part of the source, vectors where all is contiguous. */
import { elementBytes, elementCount, type DataType, type Tensor } from '../../../tensor/index.ts';
import type { Recorder } from '../../program/recorder.ts';
import { elementOf } from '../common/element.ts';
import { broadcastStrides, collapse } from '../common/indexing.ts';
import type { Buffer, KernelArgument, Value } from '../types.ts';
import { literal } from './literal.ts';

export interface ElementwiseStep {
  /** Values that it takes, in the operator's order; '' where one is left out. */
  readonly inputs: readonly string[];
  readonly name: string;
  readonly output: DataType;
  /** The C expression over the names of its inputs. */
  readonly expression: (names: readonly string[]) => string;
}

export interface ElementwiseTree {
  /** In an order in which they can be computed; the last one's result is the kernel's. */
  readonly steps: readonly ElementwiseStep[];
  readonly value: (name: string) => Value;
  /** A constant of one element, which becomes part of the source. */
  readonly scalar: (name: string) => Tensor | undefined;
  readonly recorder: Recorder;
}

const threadsPerBlock = 256;
/** Bytes that a thread loads at once. */
const vectorBytes = 16;

interface Operand {
  readonly value: Value;
  /** Elements from one position to the next, by collapsed dimension; 0: it is repeated along it. */
  readonly strides: readonly number[];
}

/** Elements per thread: 16 bytes of the widest type, where each operand is contiguous or repeated along the innermost dimension. */
function vectorLength(sizes: readonly number[], operands: readonly Operand[], result: Value): number {
  const widest = Math.max(...[...operands.map(({ value }) => value), result].map((each) => elementBytes[each.kept]));
  const inner = sizes.at(-1) ?? 1;
  for (let length = Math.min(8, vectorBytes / widest); length > 1; length /= 2) {
    const fits =
      inner % length === 0 &&
      [{ value: result, strides: [1] }, ...operands].every(({ value, strides }) => {
        const stride = strides.at(-1) ?? 0;
        if (stride === 0) return true;
        const outer = strides.slice(0, -1).every((each) => each % length === 0);
        return stride === 1 && outer && value.buffer.byteOffset % (length * elementBytes[value.kept]) === 0;
      });
    if (fits) return length;
  }
  return 1;
}

/** `index` taken apart into coordinates, by constants that the compiler turns into multiplications. */
function coordinates(sizes: readonly number[], type: string): string[] {
  const lines = [`${type} rest = index;`];
  for (let axis = sizes.length - 1; axis > 0; axis--) {
    lines.push(`const ${type} c${axis} = rest % ${sizes[axis]}u; rest /= ${sizes[axis]}u;`);
  }
  lines.push(`const ${type} c0 = rest;`);
  return lines;
}

function offsetOf(strides: readonly number[]): string {
  const terms = strides.flatMap((stride, axis) =>
    stride === 0 ? [] : [stride === 1 ? `c${axis}` : `c${axis} * ${stride}u`],
  );
  return terms.length === 0 ? '0' : terms.join(' + ');
}

/**
 * Emits the kernel: each thread makes one vector of the result.
 *
 * @throws Unsupported for datatypes that no kernel has
 */
export function emitElementwise({ steps, value, scalar, recorder }: ElementwiseTree): void {
  const last = steps.at(-1);
  if (last === undefined) return;
  const result = value(last.name);
  if (result.elements === 0) return;
  const made = new Map<string, string>();
  for (const [index, step] of steps.entries()) made.set(step.name, `v${index}`);

  const names = [...new Set(steps.flatMap(({ inputs }) => inputs))].filter((name) => name !== '' && !made.has(name));
  const read = names.filter((name) => scalar(name) === undefined).map((name) => value(name));
  const dimensions = collapse(result.shape, ...read.map(({ shape }) => broadcastStrides(shape, result.shape)));
  const sizes = dimensions.map(({ size }) => size);
  const operands = read.map((each, index): Operand => ({
    value: each,
    strides: dimensions.map(({ steps }) => steps[index]!),
  }));
  const length = vectorLength(sizes, operands, result);
  const index = result.elements > 2 ** 31 ? 'unsigned long long' : 'unsigned int';
  const whole = (strides: readonly number[]): boolean =>
    sizes.length === 0 || (strides.length === 1 && strides[0] === 1);
  const needsCoordinates = operands.some(({ strides }) => !whole(strides) && strides.some((stride) => stride !== 0));

  const body: string[] = [];
  const expressionOf = new Map<string, string>();
  for (const name of names) {
    const constant = scalar(name);
    if (constant !== undefined) expressionOf.set(name, literal(constant));
  }
  for (const [place, { value: operand, strides }] of operands.entries()) {
    const element = elementOf(operand.kept);
    const inner = strides.at(-1) ?? 0;
    const offset = whole(strides) ? 'index' : offsetOf(strides);
    const vector = length > 1 && inner === 1;
    if (vector) {
      body.push(
        `const Vector<${element.stored}, ${length}> a${place} = *(const Vector<${element.stored}, ${length}>*)(p${place} + (${offset}));`,
      );
      expressionOf.set(operand.name, element.load(`a${place}.at[lane]`));
    } else {
      body.push(
        `const ${element.computed} a${place} = ${element.load(`p${place}[${sizes.length === 0 ? '0' : offset}]`)};`,
      );
      expressionOf.set(operand.name, `a${place}`);
    }
  }
  const inner: string[] = [];
  for (const { name, inputs, output, expression } of steps) {
    const { computed } = elementOf(output);
    const given = inputs.map((input) => (input === '' ? '' : (expressionOf.get(input) ?? '')));
    inner.push(`const ${computed} ${made.get(name)} = (${computed})(${expression(given)});`);
    expressionOf.set(name, made.get(name)!);
  }
  const stored = elementOf(result.kept);
  const store = stored.store(made.get(last.name)!);
  const lines =
    length > 1
      ? [
          `Vector<${stored.stored}, ${length}> result;`,
          '#pragma unroll',
          `for (int lane = 0; lane < ${length}; lane++) {`,
          ...inner.map((line) => `  ${line}`),
          `  result.at[lane] = ${store};`,
          '}',
          `*(Vector<${stored.stored}, ${length}>*)(out + index) = result;`,
        ]
      : [...inner, `out[index] = ${store};`];
  const parameters = [
    ...operands.map(({ value: each }, place) => `const ${elementOf(each.kept).stored}* p${place}`),
    `${stored.stored}* out`,
  ];
  const source = [
    `KERNEL void NAME(${parameters.join(', ')}) {`,
    `  const ${index} index = (blockIdx.x * (${index})blockDim.x + threadIdx.x) * ${length}u;`,
    `  if (index >= ${result.elements}u) return;`,
    ...(needsCoordinates ? coordinates(sizes, index) : []).map((line) => `  ${line}`),
    ...[...body, ...lines].map((line) => (line.startsWith('#') ? line : `  ${line}`)),
    '}',
  ].join('\n');
  const threads = Math.ceil(result.elements / length);
  const block = Math.min(threadsPerBlock, Math.ceil(threads / 32) * 32);
  const kernel = recorder.kernel('elementwise', source);
  recorder.launch(
    {
      kernel,
      grid: [Math.ceil(threads / block)],
      block: [block],
      arguments: [
        ...operands.map(({ value: each }): KernelArgument => ({ type: 'read', buffer: each.buffer })),
        { type: 'write', buffer: result.buffer },
      ],
    },
    operands.flatMap(({ value: each, strides }): Buffer[] =>
      operands.filter((other) => other.value.buffer.id === each.buffer.id).length === 1 &&
      whole(strides) &&
      elementBytes[each.kept] === elementBytes[result.kept] &&
      elementCount(each.shape) === result.elements
        ? [each.buffer]
        : [],
    ),
  );
}
