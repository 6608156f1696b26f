/**
 * Attention as one launch (kernels/attention.cu). Scores stay in a block's registers and shared memory; all sums are
 * computed in 32 bits.
 */
import { elementOf, floatLiteral } from '../../../operators/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import type { ProgramSettings } from '../../types.ts';
import { weightedSum } from '../common/indexing.ts';
import { argumentsOf, declaredBehind, read, write } from '../common/launching.ts';
import { teamKernel } from '../common/teams.ts';
import type { Emitter } from '../types.ts';
import type { Attention, Heads } from './heads.ts';

/** The result of a row whose scores are all minus infinity. 'no-nan': zeros, also for a row with NaN scores. */
export type EmptyRows = 'nan' | 'zero' | 'no-nan';

const emptyRows: Readonly<Record<EmptyRows, string>> = { nan: 'false', zero: '(sum) == 0', 'no-nan': '!((sum) > 0)' };

/** Shared memory that a block may use on every GPU without a request. */
const sharedBytesMax = 48 * 1024;
/** Results of a larger head would not fit into a thread's registers. */
const sizeMax = 256;
/** About the multiprocessors of a large GPU. With fewer blocks, smaller ones keep more multiprocessors busy. */
const blocksMin = 128;
/** Up to this number of rows, 16-bit products are limited by memory and not by the cores. */
const fewRows = 16;

const types = new Set<DataType>(['FP32', 'FP16', 'BF16']);

export interface AttentionSizes {
  readonly batch: number;
  readonly heads: number;
  readonly queries: number;
  readonly keys: number;
  readonly size: number;
  readonly valueSize: number;
}

export const sizesOf = ({ batch, q, k, v }: Attention): AttentionSizes => ({
  batch,
  heads: q.heads,
  queries: q.rows,
  keys: k.rows,
  size: q.size,
  valueSize: v.size,
});

interface Tile {
  readonly rows: number;
  readonly keys: number;
}

/** A row's length in shared memory, in units of 16 bytes. It is odd, so neighbouring rows begin in different banks. */
const pitchOf = (elements: number): number => Math.ceil(elements / 4) | 1;

function sharedBytes({ size, valueSize }: AttentionSizes, { rows, keys }: Tile): number {
  return 16 * (rows * pitchOf(size) + keys * pitchOf(Math.max(size, valueSize)) + (rows * (keys | 16)) / 4);
}

/** Rows of queries and keys that a block works on at a time; undefined if no tile fits. */
export function tileOf(sizes: AttentionSizes): Tile | undefined {
  const { batch, heads, queries, keys, size, valueSize } = sizes;
  if (size > sizeMax || valueSize > sizeMax) return undefined;
  const rowsFor = (rows: number): boolean => batch * heads * Math.ceil(queries / rows) >= blocksMin;
  const most = [64, 32].find(rowsFor) ?? 16;
  const rows = [64, 32, 16].filter((count) => count <= most);
  const tiles = (counts: readonly number[]): Tile[] =>
    rows.flatMap((each) => counts.map((count) => ({ rows: each, keys: count })));
  // With 16 keys at a time a thread reads more of shared memory than it multiplies.
  const wide = keys <= 16 ? [] : tiles(keys <= 32 ? [32] : [64, 32]);
  return [...wide, ...tiles([16])].find((tile) => sharedBytes(sizes, tile) <= sharedBytesMax);
}

/**
 * Whether one launch is faster. This kernel does not use tensor cores, so with many rows of 16 bits or TF32 two
 * products are faster.
 */
export function isOneKernel(
  { precision }: ProgramSettings,
  datatypes: readonly DataType[],
  sizes: AttentionSizes,
): boolean {
  const { batch, heads, queries, keys, size, valueSize } = sizes;
  if (batch * heads * queries * keys * size * valueSize === 0) return false;
  if (!datatypes.every((type) => types.has(type)) || tileOf(sizes) === undefined) return false;
  const isExact = precision === 'exact' && datatypes.every((type) => type === 'FP32');
  return isExact || queries <= fewRows;
}

const headAt = ({ batch, head }: Heads): string => weightedSum(['(b)', '(h)'], [batch, head]);

/** Whether four elements can be moved at once: the start and all strides are multiples of four elements. */
function isWide({ buffer, storedType, batch, head, row, size }: Heads): boolean {
  const places = [buffer.byteOffset / elementBytes[storedType], batch, head, row, size];
  return places.every((place) => place % 4 === 0);
}

export function emitOneKernel(emitter: Emitter, attention: Attention, empty: EmptyRows): void {
  const { q, k, v, y, scale, changes } = attention;
  const sizes = sizesOf(attention);
  const { batch, heads, queries, keys, size, valueSize } = sizes;
  const tile = tileOf(sizes)!;
  const at = { b: '(i64)(b)', h: '(i64)(h)', i: '(i64)(i)', j: '(i64)(j)', hidden: '(-F32_INFINITY)' };
  const scaled = scale === 1 ? '(x)' : `((x) * ${floatLiteral(scale)})`;
  const score = changes.reduce((text, change) => change.score(text, at), scaled);
  const parameters = changes.flatMap((change) => change.parameters);
  const definitions = Object.entries({ Q: q, K: k, V: v, Y: y }).flatMap(([name, of]) => [
    [`${name}_TYPE`, elementOf(of.storedType).stored],
    [`${name}_AT(b, h)`, headAt(of)],
    [`${name}_ROW`, `${of.row}u`],
    [`${name}_WIDE`, isWide(of) ? 1 : 0],
    name === 'Y'
      ? ['Y_STORE(x)', elementOf(of.storedType).store('(x)')]
      : [`${name}_LOAD(x)`, elementOf(of.storedType).load('(x)')],
  ]);
  const kernel = emitter.kernel(
    'attention',
    teamKernel('attention', {
      ...Object.fromEntries(definitions),
      PARAMETERS: declaredBehind(parameters),
      'SCORE(x, b, h, i, j)': score,
      'EMPTY(sum)': emptyRows[empty],
      QUERIES: `${queries}u`,
      KEYS: `${keys}u`,
      SIZE: `${size}u`,
      VALUE_SIZE: `${valueSize}u`,
      HEADS: `${heads}u`,
      GROUP: `${heads / k.heads}u`,
      TILE_ROWS: `${tile.rows}u`,
      TILE_KEYS: `${tile.keys}u`,
    }),
  );
  emitter.launch({
    kernel,
    grid: [batch * heads * Math.ceil(queries / tile.rows)],
    block: [128],
    arguments: [read(q.buffer), read(k.buffer), read(v.buffer), ...argumentsOf(parameters), write(y.buffer)],
  });
}
