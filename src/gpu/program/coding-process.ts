/** The process of coded.ts: coding takes a core for 10 ms a MiB, which neither calls nor compilations wait for. */
import { decodePack, encodePack } from '../../coding/index.ts';
import { serve } from '../../process/index.ts';
import { writeWhole } from '../../tools/index.ts';
import { alignUp } from './arena.ts';
import type { CodingApi, CodingOrder } from './coded.ts';
import { readRange } from './files.ts';

async function code({ name, bytes, weights, path }: CodingOrder): Promise<void> {
  const pack = new Uint8Array(bytes);
  for (const { byteOffset, bytes: weightBytes, source } of weights)
    pack.set(readRange(source.path, source.byteOffset, weightBytes), byteOffset);
  const coded = encodePack(pack, weights);
  // An empty file says that nothing is gained.
  if (coded === undefined) return await writeWhole(path, '');
  if (Buffer.compare(decodePack(coded), pack) !== 0)
    throw new Error(`layer '${name}' is another one after it was coded and decoded`);
  // Layers that lie together in host memory share a copy: it brings nothing that is not counted.
  await writeWhole(path, Buffer.concat([coded], alignUp(coded.byteLength)));
}

serve<CodingApi>({ code });
