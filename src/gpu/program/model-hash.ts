/** A hash of a model's content: the key under which its programs are cached. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { LRUCache } from 'lru-cache';
import { fileStamp, type WeightLocation } from '../../onnx/index.ts';
import { getOrStart } from '../../tools/index.ts';

const known = new LRUCache<string, Promise<string>>({ max: 10_000 });

/**
 * The sha256 of the model file and its external data, in hexadecimal. A file with several names is read once, also if
 * its functions are prepared at once.
 */
export async function hashModel(modelPath: string, locations: Iterable<WeightLocation>): Promise<string> {
  const beside = new Map<string, string>();
  for (const { location, path } of locations) if (location !== undefined) beside.set(location, path);
  const files = [['', resolve(modelPath)] as const, ...[...beside].sort(([a], [b]) => (a < b ? -1 : 1))];
  const stamp = files.map(([name, path]) => `${name}\0${fileStamp(path)}`).join('\0');
  return await getOrStart(known, stamp, () => hashFiles(files));
}

async function hashFiles(files: readonly (readonly [name: string, path: string])[]): Promise<string> {
  const hash = createHash('sha256');
  for (const [name, path] of files) {
    hash.update(`${name}\0`);
    await pipeline(createReadStream(path, { highWaterMark: 2 ** 20 }), async (chunks: AsyncIterable<Buffer>) => {
      for await (const chunk of chunks) hash.update(chunk);
    });
  }
  return hash.digest('hex');
}
