/**
 * A short-lived process that prepares one model and its weights, or verifies that the prepared files on disk are
 * intact.
 */
import { mkdir, open, readFile, rename, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { serve } from '../../process/index.ts';
import { hashFile, jsonAs } from '../../tools/index.ts';
import { writePrepared } from './session.ts';
import { cutWeights } from './weights-chunks.ts';
import {
  preparedFile,
  manifestFile,
  worthBytesMin,
  type Manifest,
  type PrepareOrder,
  type Prepared,
  type WeightsApi,
} from './weights-entry.ts';

/** As ONNX Runtime writes it, before it is cut. */
const weightsFile = 'weights.bin';
/** Share of the disk that is left free. */
const freeShareMin = 0.1;

async function prepare({ folder, shared, modelPath, modelBytes, opening }: PrepareOrder): Promise<Prepared> {
  if (await isIntact(folder)) return { state: 'ready', built: false };
  const building = join(dirname(folder), `.building-${basename(folder)}-${process.pid}`);
  await rm(building, { recursive: true, force: true });
  await mkdir(building, { recursive: true });
  try {
    await checkRoom(building, modelBytes);
    const [preparedPath, weightsPath] = [join(building, preparedFile), join(building, weightsFile)];
    await writePrepared(modelPath, opening, preparedPath, weightsFile);
    if ((await sizeOf(weightsPath)) < worthBytesMin) return { state: 'small' };
    const chunks = await cutWeights(preparedPath, weightsPath, shared);
    await flush(preparedPath);
    const manifest: Manifest = { chunks, model: await hashFile(preparedPath) };
    await writeFile(join(building, manifestFile), JSON.stringify(manifest), { flush: true });
    await rm(folder, { recursive: true, force: true });
    await rename(building, folder);
    return { state: 'ready', built: true };
  } catch (error) {
    // Another host that uses the folder may have been faster.
    if (await isIntact(folder)) return { state: 'ready', built: false };
    throw error;
  } finally {
    await rm(building, { recursive: true, force: true });
  }
}

async function isIntact(folder: string): Promise<boolean> {
  const text = await readFile(join(folder, manifestFile), 'utf8').catch(() => undefined);
  const expected = jsonAs(text, ({ model, chunks }: Manifest) => [{ ...model, name: preparedFile }, ...chunks]);
  for (const { name, bytes, sha256 } of expected ?? []) {
    const path = join(folder, name);
    if ((await sizeOf(path)) !== bytes || (await hashFile(path)).sha256 !== sha256) return false;
  }
  return expected !== undefined;
}

/** A cache that fills the disk would make publications fail. */
async function checkRoom(folder: string, modelBytes: number): Promise<void> {
  const { bavail, blocks, bsize } = await statfs(folder);
  const leftShare = (bavail * bsize - 3 * modelBytes) / (blocks * bsize);
  if (leftShare < freeShareMin) throw new Error(`less than a tenth of the disk of ${folder} would be free`);
}

/** -1 if the file does not exist. */
async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    return -1;
  }
}

async function flush(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

serve<WeightsApi>({ prepare });
