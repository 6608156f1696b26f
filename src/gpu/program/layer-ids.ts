/**
 * Names of layers by their content. Functions whose first layers have the same names have the same bytes there, laid out
 * alike, and share them in host memory and on GPUs; a layer's own content also names its coded form.
 */
import { createHash } from 'node:crypto';
import { readFile, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonAs, writeWhole } from '../../tools/index.ts';
import type { CodedLayer, WeightLayout } from './types.ts';
import { WeightReader } from './weight-reader.ts';

/** Of a file at a time. */
const chunkBytes = 4 * 2 ** 20;

/** By layer: a hash of its bytes and of all layers before it, each in the form in which host memory holds it. */
export async function layerIds(layout: WeightLayout, cacheFolder: string): Promise<readonly string[]> {
  const contents = await layerContents(layout, cacheFolder);
  let before = '';
  return layout.layers.map(({ index, coded }) => {
    const form = coded === undefined ? '' : ` ${formOf(coded)}`;
    before = createHash('sha256').update(`${before} ${contents[index]}${form}`).digest('hex');
    return before;
  });
}

/** A coded layer and one that is not are different in host memory, whatever they are on a GPU. */
const formOf = ({ source: _source, ...form }: CodedLayer): string => JSON.stringify(form);

/**
 * By layer: a hash of its own bytes and of how they are laid out. Reads all weights once; what it found is kept in the
 * cache as long as their files stay as they are.
 */
export async function layerContents(layout: WeightLayout, cacheFolder: string): Promise<readonly string[]> {
  const path = join(cacheFolder, 'layers', await identityOf(layout));
  const known = await cachedContents(path, layout.layers.length);
  if (known !== undefined) return known;
  const contents = await hashLayers(layout);
  await writeWhole(path, JSON.stringify(contents));
  return contents;
}

async function cachedContents(path: string, count: number): Promise<readonly string[] | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
    // What is not used for long is removed.
    const now = new Date();
    await utimes(path, now, now);
  } catch {
    return undefined;
  }
  return jsonAs<readonly string[]>(text, (contents) => (contents.length === count ? contents : undefined));
}

/** Changes when a file of the weights does, as far as its size and times tell. */
async function identityOf({ layers, weights }: WeightLayout): Promise<string> {
  const files: Record<string, string> = {};
  for (const { source } of weights) {
    if (files[source.path] !== undefined) continue;
    const { size, mtimeMs, ctimeMs, ino } = await stat(source.path);
    files[source.path] = [size, mtimeMs, ctimeMs, ino].join();
  }
  const sizes = layers.map(({ bytes }) => bytes);
  return createHash('sha256')
    .update(JSON.stringify(['own', sizes, weights, files]))
    .digest('hex');
}

async function hashLayers({ layers, weights }: WeightLayout): Promise<string[]> {
  await using reader = new WeightReader();
  const chunk = Buffer.allocUnsafe(chunkBytes);
  const contents: string[] = [];
  for (const { index, bytes } of layers) {
    const hash = createHash('sha256').update(String(bytes));
    const own = weights.filter(({ layer }) => layer === index).toSorted((a, b) => a.byteOffset - b.byteOffset);
    for (const weight of own) {
      hash.update(` ${weight.datatype} ${weight.byteOffset} ${weight.bytes} `);
      for (let at = 0; at < weight.bytes; at += chunkBytes) {
        const part = chunk.subarray(0, weight.bytes - at);
        await reader.read(weight, at, part);
        hash.update(part);
      }
    }
    contents.push(hash.digest('hex'));
  }
  return contents;
}
