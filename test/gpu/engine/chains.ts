/**
 * Hand-made programs for tests of the engine: a chain of layers, each y[i] = 3 x[i] + the sum of all words of w + w[i
 * mod their number], in 32-bit words. Any misplaced, missing or early byte of a weight changes the outputs.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ColdStartMode, ColdStartPlan } from '../../../src/plan/index.ts';
import type { Launch, Operand, Program, WeightLayer, ProgramWeight } from '../../../src/gpu/program/types.ts';
import { trainedLike } from '../../support/trained-like.ts';
import type { Tensor } from '../../../src/tensor/index.ts';

export interface Chain {
  readonly key: string;
  readonly program: Program;
  readonly input: Tensor;
  /** The output for `input`. */
  readonly expected: Uint32Array;
}

/** The kernel in CUDA C, for drivers that compile. */
export const chainSource = `
KERNEL void chain(const unsigned* w, int words, const unsigned* x, unsigned* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned sum = 0;
  for (int k = 0; k < words; k++) sum += w[k];
  y[i] = x[i] * 3u + sum + (words > 0 ? w[i % words] : 0u);
}
`;

export interface ChainOptions {
  readonly folder: string;
  readonly name: string;
  /** Words of each layer's weights; 0 for a layer without any. */
  readonly layerWords: readonly number[];
  /** The last layer reads the first one's weights, as tied embeddings do. */
  readonly tied?: boolean;
  /** Words of the program's constants, which a last launch reads as the others read weights. */
  readonly constantWords?: number;
  /** Words of input and output. */
  readonly width?: number;
  /** Weights as training leaves them, which can be coded; default: any words. */
  readonly floats?: boolean;
  /** So many of its first layers have the same weights in all chains that name the same base. */
  readonly shares?: { readonly base: string; readonly layers: number };
}

const align = (bytes: number): number => Math.ceil(bytes / 256) * 256;

const floatWords = (elements: number, seed: number): Uint32Array =>
  new Uint32Array(trainedLike({ datatype: 'FP32', elements, deviation: 0.02, seed }).buffer);

function wordsSeededBy(name: string): () => number {
  let state = Buffer.from(name).reduce((hash, byte) => (Math.imul(hash, 31) + byte) | 0, 7) >>> 0 || 1;
  return () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0);
}

/** Seeded by the name, so that no two chains have the same weights but for those that they share. */
export function makeChain(options: ChainOptions): Chain {
  const { folder, name, layerWords, tied = false, constantWords = 0, width = 32, floats = false, shares } = options;
  const next = wordsSeededBy(name);
  const shared = wordsSeededBy(shares?.base ?? '');
  const path = join(folder, `${name}.weights`);
  const contents = layerWords.map((words, layer) => {
    const seeds = layer < (shares?.layers ?? 0) ? shared : next;
    return floats ? floatWords(words, seeds()) : Uint32Array.from({ length: words }, seeds);
  });
  writeFileSync(path, Buffer.concat(contents.map((words) => Buffer.from(words.buffer))));

  const constants = Uint32Array.from({ length: constantWords }, next);

  const layers: WeightLayer[] = [];
  const weights: ProgramWeight[] = [];
  const launches: Launch[] = [];
  const owners: (number | null)[] = [];
  let fileOffset = 0;
  for (const [index, words] of layerWords.entries()) {
    layers.push({ index, name: `${name}.${index}`, kind: 'linear', bytes: align(words * 4) });
    owners.push(words > 0 ? weights.length : null);
    if (words === 0) continue;
    const source = { path, byteOffset: fileOffset };
    weights.push({
      name: `w${index}`,
      datatype: floats ? 'FP32' : 'UINT32',
      shape: [words],
      bytes: words * 4,
      layer: index,
      byteOffset: 0,
      source,
    });
    fileOffset += words * 4;
  }
  const buffer = align(width * 4);
  let at = 0;
  let expected: Uint32Array = Uint32Array.from({ length: width }, next);
  const data = expected;
  const addLaunch = (layer: number, reads: number | null, read: Uint32Array, operand?: Operand): void => {
    const words = read.length;
    const from = at;
    at = from === 0 ? buffer : 0;
    const sum = read.reduce((total, word) => (total + word) >>> 0, 0);
    expected = expected.map((x, i) => Math.imul(x, 3) + sum + (words > 0 ? read[i % words]! : 0));
    launches.push({
      kind: 'kernel',
      kernel: 'chain',
      grid: [Math.ceil(width / 32), 1, 1],
      block: [32, 1, 1],
      layer,
      reads: reads === null ? [] : [reads],
      label: `layer ${layer}`,
      arguments: [
        {
          type: 'pointer',
          operand: operand ?? { space: 'arena', byteOffset: from },
          access: 'read',
          bytes: words * 4,
        },
        { type: 'i32', value: words },
        { type: 'pointer', operand: { space: 'arena', byteOffset: from }, access: 'read', bytes: width * 4 },
        { type: 'pointer', operand: { space: 'arena', byteOffset: at }, access: 'write', bytes: width * 4 },
        { type: 'i32', value: width },
      ],
    });
  };
  const addLayer = (layer: number, reads: number): void => {
    const weight = owners[reads]!;
    if (weight === null) addLaunch(layer, null, new Uint32Array());
    else addLaunch(layer, reads, contents[reads]!, { space: 'weight', weight, byteOffset: 0 });
  };
  for (const index of layerWords.keys()) addLayer(index, index);
  const last = layerWords.length - 1;
  if (tied)
    addLayer(
      last,
      layerWords.findIndex((words) => words > 0),
    );
  if (constantWords > 0) addLaunch(last, null, constants, { space: 'constant', byteOffset: 0 });

  const tensor = { datatype: 'UINT32' as const, shape: [width] };
  const bytes = width * 4;
  return {
    key: name,
    input: { name: 'x', ...tensor, data: new Uint8Array(data.buffer) },
    expected,
    program: {
      key: `program of ${name}`,
      layout: { layers, weights, bytes: layers.reduce((sum, layer) => sum + layer.bytes, 0) },
      inputs: [{ name: 'x', ...tensor, byteOffset: 0, bytes }],
      outputs: [{ name: 'y', ...tensor, byteOffset: at, bytes }],
      arenaBytes: 2 * buffer,
      workspaceBytes: 0,
      constants: new Uint8Array(constants.buffer),
      source: chainSource,
      launches,
    },
  };
}

export interface PlanShape {
  readonly mode: ColdStartMode;
  readonly primary?: number;
  readonly secondaries?: readonly number[];
  /** Layers that execute from host memory. */
  readonly fromHost?: (layer: number) => boolean;
}

/** A plan of a mode: consecutive partitions for `pt`, layers in turns for `interleave`. */
export function planFor(
  { program }: Pick<Chain, 'program'>,
  { mode, primary = 0, secondaries = [], fromHost }: PlanShape,
): ColdStartPlan {
  const { layers } = program.layout;
  const usesHost = mode === 'dha' || mode === 'pt+dha' || mode === 'interleave';
  const methods = layers.map(({ index, bytes }) =>
    bytes === 0 || (usesHost && (fromHost?.(index) ?? index === 0)) ? ('dha' as const) : ('load' as const),
  );
  const links = [primary, ...secondaries];
  const loaded = [...layers.keys()].filter((index) => methods[index] === 'load');
  const linkOf = (layer: number): number => {
    const rank = loaded.indexOf(layer);
    const which = mode === 'interleave' ? rank % links.length : Math.floor((rank * links.length) / loaded.length);
    return links[which]!;
  };
  return {
    mode,
    primary,
    secondaries,
    bytesGpu: loaded.reduce((sum, layer) => sum + layers[layer]!.bytes, 0),
    layers: layers.map(({ name, index }) => ({
      name,
      method: methods[index]!,
      link: methods[index] === 'load' ? linkOf(index) : null,
    })),
  };
}

/** The words of a run's only output. */
export function wordsOf([output]: readonly Tensor[]): Uint32Array {
  const { data } = output!;
  return new Uint32Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength));
}
