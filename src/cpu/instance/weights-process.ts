/**
 * A short-lived process that prepares one model and its weights, or verifies that the prepared files on disk are
 * intact.
 */
import { mkdir, open, readFile, rename, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { serve } from '../../process/index.ts';
import { hashFile, type StreamedBytes } from '../../tools/index.ts';
import { writePrepared } from './session.ts';
import { alignWeights } from './weights-align.ts';
import {
  preparedFile,
  weightsFile,
  manifestFile,
  worthBytesMin,
  type Manifest,
  type PrepareOrder,
  type Prepared,
  type WeightsApi,
} from './weights-entry.ts';

/** Share of the disk that is left free. */
const freeShareMin = 0.1;

async function prepare({ folder, modelPath, opening }: PrepareOrder): Promise<Prepared> {
  if (await isIntact(folder)) return { state: 'ready', built: false };
  const building = join(dirname(folder), `.building-${basename(folder)}-${process.pid}`);
  await rm(building, { recursive: true, force: true });
  await mkdir(building, { recursive: true });
  try {
    await checkRoom(building, await sizeOf(modelPath));
    const [preparedPath, weightsPath] = [join(building, preparedFile), join(building, weightsFile)];
    await writePrepared(modelPath, opening, preparedPath, weightsFile);
    if ((await sizeOf(weightsPath)) < worthBytesMin) return { state: 'small' };
    await alignWeights(preparedPath, weightsPath);
    // The pages count as each instance's own until they are on disk, and a power cut must not leave half of them.
    await flush(weightsPath);
    await flush(preparedPath);
    const manifest: Manifest = { weights: await hashFile(weightsPath), model: await hashFile(preparedPath) };
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
  let expected: readonly (readonly [file: string, StreamedBytes | undefined])[];
  try {
    const { model, weights } = JSON.parse(await readFile(join(folder, manifestFile), 'utf8')) as Partial<Manifest>;
    expected = [
      [preparedFile, model],
      [weightsFile, weights],
    ];
  } catch {
    return false;
  }
  for (const [file, content] of expected) {
    const path = join(folder, file);
    if ((await sizeOf(path)) !== content?.bytes || (await hashFile(path)).sha256 !== content.sha256) return false;
  }
  return true;
}

/** A cache that fills the disk would make publications fail. */
async function checkRoom(folder: string, modelBytes: number): Promise<void> {
  const { bavail, blocks, bsize } = await statfs(folder);
  const leftShare = (bavail * bsize - 2 * modelBytes) / (blocks * bsize);
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
