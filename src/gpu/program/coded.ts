/**
 * Layers coded without loss: each content of a layer is coded once, into a file that is named by its hash, whichever
 * functions have it, by a process of low priority. Each layer is decoded and compared before it is kept.
 */
import { createHash } from 'node:crypto';
import { open, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { canBeCoded, CodingError, describeCoded, directoryBytes, headerBytes } from '../../coding/index.ts';
import { compiledModule, niceness, OnDemand } from '../../process/index.ts';
import { getOrMake } from '../../tools/index.ts';
import { GpuError } from '../types.ts';
import { fillFrom } from './files.ts';
import { layerContents } from './layer-ids.ts';
import type { CodedLayer, ProgramWeight, WeightLayer, WeightLayout } from './types.ts';

/** Of another form of coded packs; part of the files' names. */
const codedFormat = 3;

/** Of a layer's content: null where coding it gains nothing. */
type Coded = CodedLayer | null;

/** A layer with its weights, and the file for its coded form. */
export interface CodingOrder {
  readonly name: string;
  readonly bytes: number;
  readonly weights: readonly ProgramWeight[];
  readonly path: string;
}

export interface CodingApi {
  code(order: CodingOrder): void;
}

/** So that the layers of a model share a process. */
const idleMsMax = 5_000;

const coder = new OnDemand<CodingApi>({
  what: 'the process that codes layers',
  inOrder: true,
  idleMsMax,
  process: { module: compiledModule('./coding-process.js', import.meta.url), niceness: niceness.background },
});

/** By path: functions that are prepared at once share the work. */
const coding = new Map<string, Promise<Coded>>();

interface CodingOptions {
  /** Layers that stay as they are, though they gain: a planner has chosen so. */
  readonly asTheyAre?: readonly number[];
  /** Of a layer; see {@link canBeCoded}. */
  readonly leastBytes?: number;
}

/** A layout whose layers are coded where that gains. @throws GpuError 'weights-unreadable' */
export async function withCoding(
  layout: WeightLayout,
  cacheFolder: string,
  { asTheyAre = [], leastBytes }: CodingOptions = {},
): Promise<WeightLayout> {
  const contents = await layerContents(layout, cacheFolder);
  const layers: WeightLayer[] = [];
  for (const layer of layout.layers) {
    const { index, kind, bytes } = layer;
    const isCoded = canBeCoded(kind, bytes, leastBytes) && !asTheyAre.includes(index);
    const coded = isCoded ? await codedOf(layout, layer, cacheFolder, contents[index]!) : null;
    layers.push(coded === null ? layer : { ...layer, coded });
  }
  return { ...layout, layers };
}

async function codedOf(layout: WeightLayout, layer: WeightLayer, cacheFolder: string, content: string): Promise<Coded> {
  const name = createHash('sha256').update(`${codedFormat} ${content}`).digest('hex');
  const path = join(cacheFolder, 'coded', name);
  return await getOrMake(coding, path, () => keptOrCoded(layout, layer, path).finally(() => coding.delete(path)));
}

async function keptOrCoded(layout: WeightLayout, { index, name, bytes }: WeightLayer, path: string): Promise<Coded> {
  const stored = await keptIn(path);
  if (stored !== undefined) return stored;
  const weights = layout.weights.filter(({ layer }) => layer === index);
  await coder.running.call('code', { name, bytes, weights, path });
  const coded = await keptIn(path);
  if (coded === undefined) throw new GpuError('weights-unreadable', `what was coded to '${path}' cannot be read again`);
  return coded;
}

/** What a file tells; undefined if it is missing, or damaged in its directory. Damaged units are found by the kernel. */
async function keptIn(path: string): Promise<Coded | undefined> {
  try {
    await using file = await open(path, 'r');
    const { size } = await file.stat();
    // What is not used for long is removed.
    const now = new Date();
    await utimes(path, now, now);
    if (size === 0) return null;
    const read = async (bytes: number): Promise<Buffer> => {
      const buffer = Buffer.alloc(Math.min(bytes, size));
      await fillFrom(file, buffer, 0);
      return buffer;
    };
    const directory = await read(directoryBytes(await read(headerBytes)));
    return { codedBytes: size, ...describeCoded(directory, size), source: { path, byteOffset: 0 } };
  } catch (error) {
    if (error instanceof CodingError || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
