/** Launches of kernels with a thread for each index, and copies by strides. */
import { elementCount, elementBytes, type DataType } from '../../../tensor/index.ts';
import type { Buffer, Emitter, KernelArgument, Value } from '../types.ts';
import { collapse, coordinates, indexType, weightedSum, type Dimension } from './indexing.ts';

const threadsPerBlock = 256;

export const read = (buffer: Buffer): KernelArgument => ({ type: 'read', buffer });
export const write = (buffer: Buffer): KernelArgument => ({ type: 'write', buffer });

/** A pointer parameter of a generated kernel: 'const float* a'. */
export interface Parameter {
  readonly name: string;
  /** C type that it points to. */
  readonly type: string;
  readonly buffer: Buffer;
  readonly access?: 'read' | 'write' | 'read-write';
}

/** The declarations in a kernel's parameter list. */
export const declared = (parameters: readonly Parameter[]): string[] =>
  parameters.map(({ name, type, access = 'read' }) => `${access === 'read' ? 'const ' : ''}${type}* ${name}`);

/** The same, behind parameters that a kernel file declares itself. */
export const declaredBehind = (parameters: readonly Parameter[]): string =>
  declared(parameters)
    .map((each) => `, ${each}`)
    .join('');

export const argumentsOf = (parameters: readonly Parameter[]): KernelArgument[] =>
  parameters.map(({ access = 'read', buffer }) => ({ type: access, buffer }));

export interface IndexOptions {
  /** Integer arguments of the kernel, by name. */
  readonly scalars?: Readonly<Record<string, number>>;
  /** Threads of a block. */
  readonly threads?: number;
  /** Indices of a thread, from its `i` on; they divide the count. */
  readonly perThread?: number;
}

/**
 * Adds and launches a kernel that runs `body` for each `i` below `count`, in a thread of its own or in one for several.
 * Empty lines are dropped. With a count of 0 nothing is launched.
 */
export function forEachIndex(
  emitter: Pick<Emitter, 'kernel' | 'launch'>,
  hint: string,
  count: number,
  parameters: readonly Parameter[],
  body: readonly string[],
  { scalars = {}, threads = threadsPerBlock, perThread = 1 }: IndexOptions = {},
): void {
  if (count === 0) return;
  const index = indexType(count);
  const all = [...declared(parameters), ...Object.keys(scalars).map((name) => `i32 ${name}`)];
  const kernel = emitter.kernel(
    hint,
    [
      `KERNEL void NAME(${all.join(', ')}) {`,
      `  const ${index} i = ((${index})blockIdx.x * blockDim.x + threadIdx.x) * ${perThread}u;`,
      `  if (i >= ${count}u) return;`,
      ...body.filter((line) => line !== '').map((line) => `  ${line}`),
      '}',
      '',
    ].join('\n'),
  );
  emitter.launch({
    kernel,
    grid: [Math.ceil(count / perThread / threads)],
    block: [Math.min(threads, Math.ceil(count / perThread / 32) * 32)],
    arguments: [
      ...argumentsOf(parameters),
      ...Object.values(scalars).map((value) => ({ type: 'i32', value }) as const),
    ],
  });
}

/** Source or target of a strided copy: its start and its stride along each axis, in elements. */
export interface Side {
  readonly buffer: Buffer;
  readonly start: number;
  readonly strides: readonly number[];
}

/** Bytes that one instruction can move, widest first, and their C types. */
const words = [16, 8, 4, 2] as const;
const wordTypes: Readonly<Record<number, string>> = { 1: 'u8', 2: 'u16', 4: 'u32', 8: 'u64', 16: 'Word' };

export const wordType = (bytes: number): string => wordTypes[bytes]!;

/** The widest word that elements of `bytes` bytes can be moved by, if all places are multiples of it, in bytes. */
export const widestWord = (bytes: number, places: readonly number[]): number =>
  words.find((word) => word > bytes && places.every((place) => place % word === 0)) ?? bytes;

/** The widest word of a strided copy: the innermost dimension must be contiguous on both sides. */
function wordOfCopy(dimensions: readonly Dimension[], from: Side, to: Side, bytes: number): number {
  const inner = dimensions.at(-1);
  if (inner === undefined || inner.steps.some((step) => step !== 1)) return bytes;
  const places = [from.start, to.start, inner.size, ...dimensions.slice(0, -1).flatMap(({ steps }) => steps)];
  return widestWord(bytes, [from.buffer.byteOffset, to.buffer.byteOffset, ...places.map((place) => place * bytes)]);
}

/**
 * Copies elements by strides: 0 repeats, negative ones go backwards. If both sides are contiguous this is one copy
 * without a kernel; if the innermost dimension is, elements move in words of up to 16 bytes.
 */
export function moveStrided(
  emitter: Emitter,
  hint: string,
  sizes: readonly number[],
  datatype: DataType,
  from: Side,
  to: Side,
): void {
  const bytes = elementBytes[datatype];
  const count = elementCount(sizes);
  if (count === 0) return;
  const dimensions = collapse(sizes, from.strides, to.strides);
  const [only] = dimensions;
  if (only === undefined || (dimensions.length === 1 && only.steps.every((step) => step === 1))) {
    const total = count * bytes;
    emitter.copy(
      emitter.part(from.buffer, from.start * bytes, total),
      emitter.part(to.buffer, to.start * bytes, total),
      total,
    );
    return;
  }
  const word = wordOfCopy(dimensions, from, to, bytes);
  const perWord = word / bytes;
  const inWords = dimensions.map(({ size, steps }, axis) => {
    const inner = axis === dimensions.length - 1;
    return inner
      ? { size: size / perWord, steps: perWord === 1 ? steps : [1, 1] }
      : { size, steps: steps.map((step) => step / perWord) };
  });
  const wordSizes = inWords.map(({ size }) => size);
  const places = coordinates('i', wordSizes);
  const source = weightedSum(
    places,
    inWords.map(({ steps }) => steps[0]!),
    from.start / perWord,
  );
  const target = weightedSum(
    places,
    inWords.map(({ steps }) => steps[1]!),
    to.start / perWord,
  );
  const type = wordType(word);
  forEachIndex(
    emitter,
    hint,
    count / perWord,
    [
      { name: 'input', type, buffer: from.buffer },
      { name: 'output', type, buffer: to.buffer, access: 'write' },
    ],
    [`output[${target}] = input[${source}];`],
  );
}

export const sideOf = (value: Value, strides: readonly number[], start = 0): Side => ({
  buffer: value.buffer,
  start,
  strides,
});
