/**
 * One kernel for a tree of elementwise nodes. Shapes and strides are part of its source; contiguous operands are read
 * in vectors.
 */
import { elementOf, floatLiteral } from '../../../operators/index.ts';
import {
  elementBytes,
  elementCount,
  type DataType,
  type Tensor,
  bf16ToNumber,
  elements,
  fp16ToNumber,
} from '../../../tensor/index.ts';
import { parametersOf, written } from '../common/elements.ts';
import { broadcastStrides, collapse, coordinates, indexType, weightedSum } from '../common/indexing.ts';
import { forEachIndex } from '../common/launching.ts';
import type { Buffer, Emitter, Value } from '../types.ts';

export interface ElementwiseStep {
  /** Names of its inputs, in the operator's order; '' for an omitted one. */
  readonly inputs: readonly string[];
  readonly name: string;
  readonly output: DataType;
  /** The C expression over the names of its inputs. */
  readonly expression: (names: readonly string[]) => string;
}

export interface ElementwiseTree {
  /** In an order in which they can be computed. The result of the last one is the kernel's. */
  readonly steps: readonly ElementwiseStep[];
  readonly value: (name: string) => Value;
  /** A constant of one element, which becomes a literal in the source. */
  readonly scalar: (name: string) => Tensor | undefined;
  readonly recorder: Pick<Emitter, 'kernel'> & {
    launch(launch: Parameters<Emitter['launch']>[0], inPlaceOf: readonly Buffer[]): void;
  };
}

/** Bytes that a thread loads at once. */
const vectorBytes = 16;

interface Operand {
  readonly value: Value;
  /** By collapsed dimension, in elements; 0 if it is repeated along it. */
  readonly strides: readonly number[];
}

/**
 * Elements per thread: 16 bytes of the widest type if each operand is contiguous or repeated along the innermost
 * dimension.
 */
function vectorLength(sizes: readonly number[], operands: readonly Operand[], result: Value): number {
  const widest = Math.max(
    ...[...operands.map(({ value }) => value), result].map((each) => elementBytes[each.storedType]),
  );
  const inner = sizes.at(-1) ?? 1;
  for (let length = Math.min(8, vectorBytes / widest); length > 1; length /= 2) {
    const fits =
      inner % length === 0 &&
      [{ value: result, strides: [1] }, ...operands].every(({ value, strides }) => {
        const stride = strides.at(-1) ?? 0;
        if (stride === 0) return true;
        const outer = strides.slice(0, -1).every((each) => each % length === 0);
        return stride === 1 && outer && value.buffer.byteOffset % (length * elementBytes[value.storedType]) === 0;
      });
    if (fits) return length;
  }
  return 1;
}

/** Whether an operand's elements have the indices of the result's. */
const isWhole = (sizes: readonly number[], strides: readonly number[]): boolean =>
  sizes.length === 0 || (strides.length === 1 && strides[0] === 1);

/** The kernel's loop: its dimensions, the operands that it reads, and the number of elements per thread. */
type Walk = ReturnType<typeof walkOf>;

function walkOf(result: Value, read: readonly Value[]) {
  const dimensions = collapse(result.shape, ...read.map(({ shape }) => broadcastStrides(shape, result.shape)));
  const sizes = dimensions.map(({ size }) => size);
  const operands = read.map((value, index) => ({ value, strides: dimensions.map(({ steps }) => steps[index]!) }));
  return { sizes, operands, length: vectorLength(sizes, operands, result) };
}

/** C statements that load a vector or an element of each operand, and C expressions of the elements by name. */
function loadsOf({ sizes, operands, length }: Walk): { lines: string[]; expressions: [name: string, text: string][] } {
  const places = sizes.map((_, axis) => `c${axis}`);
  const loads = operands.map(({ value, strides }, place) => {
    const { stored, computed, load } = elementOf(value.storedType);
    const offset = isWhole(sizes, strides) ? 'i' : weightedSum(places, strides);
    if (length > 1 && strides.at(-1) === 1) {
      const vector = `const Vector<${stored}, ${length}>`;
      const line = `${vector} a${place} = *(${vector}*)(p${place} + (${offset}));`;
      return { line, name: value.name, text: load(`a${place}.at[lane]`) };
    }
    const element = load(`p${place}[${sizes.length === 0 ? '0' : offset}]`);
    return { line: `const ${computed} a${place} = ${element};`, name: value.name, text: `a${place}` };
  });
  return { lines: loads.map(({ line }) => line), expressions: loads.map(({ name, text }) => [name, text]) };
}

/** C statements that compute each step, and write the result of the last one. */
function computedLines(
  steps: readonly ElementwiseStep[],
  expressions: ReadonlyMap<string, string>,
  length: number,
  storedType: DataType,
): string[] {
  const expressionOf = new Map(expressions);
  const lines = steps.map(({ name, inputs, output, expression }, index) => {
    const { computed } = elementOf(output);
    const given = inputs.map((input) => (input === '' ? '' : (expressionOf.get(input) ?? '')));
    expressionOf.set(name, `v${index}`);
    return `const ${computed} v${index} = (${computed})(${expression(given)});`;
  });
  const { stored, store } = elementOf(storedType);
  const result = store(`v${steps.length - 1}`);
  if (length === 1) return [...lines, `out[i] = ${result};`];
  return [
    `Vector<${stored}, ${length}> result;`,
    '#pragma unroll',
    `for (int lane = 0; lane < ${length}; lane++) {`,
    ...lines.map((line) => `  ${line}`),
    `  result.at[lane] = ${result};`,
    '}',
    `*(Vector<${stored}, ${length}>*)(out + i) = result;`,
  ];
}

/** Operands whose bytes the result may use: each element is read only by the thread that then writes it. */
function replaceable({ sizes, operands }: Walk, result: Value): Buffer[] {
  const canTake = ({ value, strides }: Operand): boolean =>
    operands.filter((other) => other.value.buffer.id === value.buffer.id).length === 1 &&
    isWhole(sizes, strides) &&
    elementBytes[value.storedType] === elementBytes[result.storedType] &&
    elementCount(value.shape) === result.elements;
  return operands.filter(canTake).map(({ value }) => value.buffer);
}

/**
 * Emits the kernel; each thread makes one vector of the result.
 *
 * @throws Unsupported for BYTES
 */
export function emitElementwise({ steps, value, scalar, recorder }: ElementwiseTree): void {
  const last = steps.at(-1);
  if (last === undefined) return;
  const result = value(last.name);
  if (result.elements === 0) return;
  const made = new Set(steps.map(({ name }) => name));
  const names = [...new Set(steps.flatMap(({ inputs }) => inputs))].filter((name) => name !== '' && !made.has(name));
  const literals = names.flatMap((name): [string, string][] => {
    const constant = scalar(name);
    return constant === undefined ? [] : [[name, literal(constant)]];
  });
  const known = new Map(literals);
  const walk = walkOf(
    result,
    names.filter((name) => !known.has(name)).map((name) => value(name)),
  );
  const { sizes, operands, length } = walk;
  const { lines, expressions } = loadsOf(walk);
  const index = indexType(result.elements);
  const needsCoordinates = operands.some(
    ({ strides }) => !isWhole(sizes, strides) && strides.some((stride) => stride !== 0),
  );
  const body = [
    ...(needsCoordinates ? coordinates('i', sizes) : []).map((at, axis) => `const ${index} c${axis} = ${at};`),
    ...lines,
    ...computedLines(steps, new Map([...literals, ...expressions]), length, result.storedType),
  ];
  const parameters = parametersOf({
    ...Object.fromEntries(operands.map((operand, place) => [`p${place}`, operand.value])),
    out: written(result),
  });
  const launcher = {
    kernel: recorder.kernel.bind(recorder),
    launch: (launch: Parameters<Emitter['launch']>[0]) => recorder.launch(launch, replaceable(walk, result)),
  };
  forEachIndex(launcher, 'elementwise', result.elements, parameters, body, { perThread: length });
}

/** The only element of a tensor as a C expression, of the type that its datatype is computed in. */
export function literal(tensor: Tensor): string {
  if (tensor.datatype === 'BYTES') throw new TypeError(`'${tensor.name}' is BYTES, which C has no literals for`);
  const [element = 0] = elements(tensor);
  switch (tensor.datatype) {
    case 'FP32':
      return floatLiteral(Number(element));
    case 'FP64':
      return floatLiteral(Number(element), 'double');
    case 'FP16':
      return floatLiteral(fp16ToNumber(Number(element)));
    case 'BF16':
      return floatLiteral(bf16ToNumber(Number(element)));
    case 'INT64':
      // The smallest number has no literal: in C it would be minus a number that is one too large.
      return element === -(2n ** 63n) ? '(-9223372036854775807LL - 1)' : `(${element}LL)`;
    case 'UINT64':
      return `(${element}ULL)`;
    case 'UINT32':
      return `(${element}u)`;
    case 'INT32':
      return element === -(2 ** 31) ? '(-2147483647 - 1)' : `(${element})`;
    default:
      return `(${element})`;
  }
}
