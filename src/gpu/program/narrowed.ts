/**
 * Weights in 16 bits, for functions whose precision keeps them so. They are converted once, into a file beside the
 * computed ones: every fill of host memory then reads half the bytes, and converts nothing.
 */
import { open, stat, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { elementBytes, elementCount, singlesToBf16, singlesToFp16, type DataType } from '../../tensor/index.ts';
import { getOrMake, replaceFile } from '../../tools/index.ts';
import { GpuError, type ProgramSettings } from '../types.ts';
import { alignUp } from './arena.ts';
import type { BaseWeight, FunctionBase } from './base.ts';
import { typeOfWeight } from './emission.ts';
import type { WeightSource } from './types.ts';
import { WeightReader } from './weight-reader.ts';

/** Half a MiB of 32-bit floats: the thread is taken for less than a millisecond at a time. */
const elementsAtOnce = 128 * 1024;

interface Narrowed {
  readonly weight: BaseWeight;
  readonly datatype: DataType;
  readonly source: WeightSource;
}

interface NarrowedFile {
  readonly path: string;
  readonly bytes: number;
  readonly weights: readonly Narrowed[];
}

/** The file for a precision, whether or not it has been written; undefined if no weight changes its type. */
function narrowedFile(base: FunctionBase, settings: ProgramSettings): NarrowedFile | undefined {
  const path = join(dirname(base.derivedPath), `${settings.precision}.bin`);
  let bytes = 0;
  const weights = base.weights.flatMap((weight): Narrowed[] => {
    const datatype = typeOfWeight(weight, settings);
    if (datatype === weight.datatype) return [];
    const source = { path, byteOffset: bytes };
    bytes = alignUp(bytes + elementCount(weight.shape) * elementBytes[datatype]);
    return [{ weight, datatype, source }];
  });
  return weights.length === 0 ? undefined : { path, bytes, weights };
}

/** Where the weights of a precision are, by name; those that keep their type stay in their own files. */
export function narrowedSources(base: FunctionBase, settings: ProgramSettings): ReadonlyMap<string, WeightSource> {
  const weights = narrowedFile(base, settings)?.weights ?? [];
  return new Map(weights.map(({ weight, source }) => [weight.name, source]));
}

/** By path: functions of one model that are prepared at once share the work. */
const writing = new Map<string, Promise<void>>();

/** Writes the file of a precision, unless it is there. @throws GpuError 'unsupported', 'weights-unreadable' */
export async function writeNarrowed(base: FunctionBase, settings: ProgramSettings): Promise<void> {
  const file = narrowedFile(base, settings);
  if (file === undefined || (await stat(file.path).catch(() => undefined))?.size === file.bytes) return;
  await getOrMake(writing, file.path, () =>
    replaceFile(file.path, (temporary) => convertAll(file, temporary)).finally(() => writing.delete(file.path)),
  );
}

async function convertAll({ weights, bytes }: NarrowedFile, path: string): Promise<void> {
  await using to = await open(path, 'wx');
  await using reader = new WeightReader();
  for (const { weight, datatype, source } of weights) await convert(reader, weight, datatype, to, source.byteOffset);
  await to.truncate(bytes);
  await to.sync();
}

/**
 * The first finite element that became infinite. Of a table the check of a program's answers sees a few rows only, so
 * it would not find one.
 */
function overflowed(
  singles: Uint32Array,
  halves: Uint16Array,
  datatype: DataType,
  elements: number,
): number | undefined {
  const infinite = datatype === 'BF16' ? 0x7f80 : 0x7c00;
  for (let at = 0; at < elements; at++) {
    if ((halves[at]! & 0x7fff) === infinite && (singles[at]! & 0x7fffffff) !== 0x7f800000) return at;
  }
  return undefined;
}

async function convert(
  reader: WeightReader,
  weight: BaseWeight,
  datatype: DataType,
  to: FileHandle,
  toOffset: number,
): Promise<void> {
  const narrow = datatype === 'BF16' ? singlesToBf16 : singlesToFp16;
  const count = elementCount(weight.shape);
  const singles = new Uint32Array(Math.min(count, elementsAtOnce));
  const halves = new Uint16Array(singles.length);
  for (let at = 0; at < count; at += singles.length) {
    const elements = Math.min(singles.length, count - at);
    await reader.read(weight, at * 4, new Uint8Array(singles.buffer, 0, elements * 4));
    narrow(singles.subarray(0, elements), halves.subarray(0, elements));
    const large = overflowed(singles, halves, datatype, elements);
    if (large !== undefined)
      throw new GpuError(
        'unsupported',
        `element ${at + large} of weight '${weight.name}' is too large for ${datatype}`,
      );
    await to.writev([new Uint8Array(halves.buffer, 0, elements * 2)], toOffset + at * 2);
  }
}
