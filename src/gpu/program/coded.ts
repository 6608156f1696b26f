/**
 * Layers coded without loss: a file of them is written once for each content and precision, beside the computed weights.
 * Each layer is decoded and compared before it is kept. Tables stay as they are, since kernels read rows of them in host
 * memory; so do small layers, for which a launch takes longer than the link saves.
 */
import { open, readFile } from 'node:fs/promises';
import { decodePack, describeCoded, encodePack } from '../../coding/index.ts';
import { getOrMake, replaceFile, writeWhole } from '../../tools/index.ts';
import { GpuError } from '../types.ts';
import { alignUp } from './arena.ts';
import { readRange } from './files.ts';
import type { CodedLayer, WeightLayer, WeightLayout } from './types.ts';

/** Of another form of coded packs or of their choice; part of the file's name. */
const codedFormat = 2;
/** A fast link (55 GB/s) saves as long as a launch takes (3 us) by a sixth of a MiB. */
const codedBytesLeast = 2 ** 20;

interface Entry extends Omit<CodedLayer, 'source'> {
  readonly layer: number;
  readonly byteOffset: number;
}

/** By path: functions of one model that are prepared at once share the work. */
const writing = new Map<string, Promise<readonly Entry[]>>();

/**
 * A layout whose layers are coded where that gains.
 *
 * @param path of the file without its end; it names the content
 * @param leastBytes of a layer
 * @throws GpuError 'weights-unreadable'
 */
export async function withCoding(
  layout: WeightLayout,
  path: string,
  leastBytes = codedBytesLeast,
): Promise<WeightLayout> {
  const [data, list] = [`${path}.coded${codedFormat}`, `${path}.coded${codedFormat}.json`];
  const entries = await getOrMake(writing, data, () =>
    listedOrCoded(layout, data, list, leastBytes).finally(() => writing.delete(data)),
  );
  const coded = new Map(
    entries.map(({ layer, byteOffset, ...entry }) => [layer, { ...entry, source: { path: data, byteOffset } }]),
  );
  const layers = layout.layers.map((layer): WeightLayer => {
    const entry = coded.get(layer.index);
    return entry === undefined ? layer : Object.assign({}, layer, { coded: entry });
  });
  return { ...layout, layers };
}

async function listedOrCoded(
  layout: WeightLayout,
  data: string,
  list: string,
  leastBytes: number,
): Promise<readonly Entry[]> {
  try {
    return JSON.parse(await readFile(list, 'utf8')) as readonly Entry[];
  } catch {
    // It is not there yet.
  }
  const entries: Entry[] = [];
  await replaceFile(data, async (temporary) => {
    await using to = await open(temporary, 'wx');
    let byteOffset = 0;
    for (const layer of layout.layers) {
      const coded = codedOf(layout, layer, leastBytes);
      if (coded === undefined) continue;
      // Layers that lie together in host memory share a copy: it brings nothing that is not counted.
      const codedBytes = alignUp(coded.byteLength);
      await to.write(Buffer.concat([coded], codedBytes), 0, codedBytes, byteOffset);
      entries.push({ layer: layer.index, byteOffset, codedBytes, ...describeCoded(coded) });
      byteOffset += codedBytes;
      // Others of this thread are not held up for longer than a layer takes.
      await new Promise((resolve) => setImmediate(resolve));
    }
    await to.sync();
  });
  // Only a whole file has a list.
  await writeWhole(list, JSON.stringify(entries));
  return entries;
}

function codedOf(layout: WeightLayout, layer: WeightLayer, leastBytes: number): Uint8Array | undefined {
  if (layer.kind === 'embedding' || layer.bytes < leastBytes) return undefined;
  const weights = layout.weights.filter((weight) => weight.layer === layer.index);
  const pack = new Uint8Array(layer.bytes);
  for (const { byteOffset, bytes, source } of weights)
    pack.set(readRange(source.path, source.byteOffset, bytes), byteOffset);
  const coded = encodePack(pack, weights);
  if (coded === undefined) return undefined;
  if (Buffer.compare(decodePack(coded), pack) !== 0)
    throw new GpuError('weights-unreadable', `layer '${layer.name}' is another one after it was coded and decoded`);
  return coded;
}
