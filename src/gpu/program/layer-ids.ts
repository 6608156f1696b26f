/**
 * Names of layers by their content: functions whose first layers have the same names have the same bytes there, laid out
 * alike, and share them in host memory and on GPUs.
 */
import { createHash, type Hash } from 'node:crypto';
import { open, readFile, stat, utimes, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonAs, writeWhole } from '../../tools/index.ts';
import { fillFrom } from './files.ts';
import type { CodedLayer, WeightLayout } from './types.ts';

/** Of a file at a time. */
const chunkBytes = 4 * 2 ** 20;

/**
 * By layer: a hash of its bytes and of all layers before it. Reads all weights once; what it found is kept in the cache as
 * long as their files stay as they are.
 */
export async function layerIds(layout: WeightLayout, cacheFolder: string): Promise<readonly string[]> {
  const path = join(cacheFolder, 'layers', await identityOf(layout));
  const known = await cachedIds(path, layout.layers.length);
  if (known !== undefined) return known;
  const ids = await hashLayers(layout);
  await writeWhole(path, JSON.stringify(ids));
  return ids;
}

async function cachedIds(path: string, count: number): Promise<readonly string[] | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
    // What is not used for long is removed.
    const now = new Date();
    await utimes(path, now, now);
  } catch {
    return undefined;
  }
  return jsonAs<readonly string[]>(text, (ids) => (ids.length === count ? ids : undefined));
}

/** Changes when a file of the weights does, as far as its size and times tell. */
async function identityOf(layout: WeightLayout): Promise<string> {
  const files: Record<string, string> = {};
  for (const { source } of layout.weights) {
    if (files[source.path] !== undefined) continue;
    const { size, mtimeMs, ctimeMs, ino } = await stat(source.path);
    files[source.path] = [size, mtimeMs, ctimeMs, ino].join();
  }
  return createHash('sha256')
    .update(JSON.stringify([layout, files]))
    .digest('hex');
}

async function hashLayers({ layers, weights }: WeightLayout): Promise<string[]> {
  const files = new Map<string, FileHandle>();
  const chunk = Buffer.allocUnsafe(chunkBytes);
  let before = '';
  try {
    const ids: string[] = [];
    for (const { index, bytes, coded } of layers) {
      const hash = createHash('sha256').update(`${before} ${bytes}${coded === undefined ? '' : ` ${formOf(coded)}`}`);
      const own = weights.filter(({ layer }) => layer === index).toSorted((a, b) => a.byteOffset - b.byteOffset);
      for (const { source, datatype, byteOffset, bytes: weightBytes } of own) {
        hash.update(` ${datatype} ${byteOffset} ${weightBytes} `);
        let file = files.get(source.path);
        if (file === undefined) files.set(source.path, (file = await open(source.path, 'r')));
        await hashPart(hash, file, source.byteOffset, weightBytes, chunk);
      }
      before = hash.digest('hex');
      ids.push(before);
    }
    return ids;
  } finally {
    for (const file of files.values()) await file.close();
  }
}

/** A coded layer and one that is not are different in host memory, whatever they are on a GPU. */
const formOf = ({ source: _source, ...form }: CodedLayer): string => JSON.stringify(form);

async function hashPart(hash: Hash, file: FileHandle, byteOffset: number, bytes: number, chunk: Buffer): Promise<void> {
  for (let at = 0; at < bytes; at += chunk.length) {
    const part = chunk.subarray(0, Math.min(chunk.length, bytes - at));
    await fillFrom(file, part, byteOffset + at);
    hash.update(part);
  }
}
