/**
 * Shares the memory of a function's weights between its instances.
 *
 * ONNX Runtime copies a model's weights into each session, in the layout that the processor's kernels use. Saved once
 * in that layout as files, they are mapped by every later session, and all sessions share the same pages; those of
 * another version of the model too, where its layers are the same (weights-chunks.ts). The layout holds for one model,
 * processor and version of ONNX Runtime, so these name the entry. A separate process
 * (weights-process.ts) writes and checks it, since either takes about a second per hundred MiB.
 */
import { createHash } from 'node:crypto';
import { readdir, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { callOnce, compiledModule, niceness } from '../../process/index.ts';
import { processorIdentity } from '../../hardware/index.ts';
import { chunksFolder } from '../../onnx/index.ts';
import { onnxRuntimeVersion } from '../../tensor/index.ts';
import { removeUnused } from '../../tools/index.ts';
import { needOfPreparer, type LoadGate } from './load-gate.ts';
import { removeUnusedChunks } from './weights-chunks.ts';
import type { InstanceSpec } from '../types.ts';
import {
  manifestFile,
  preparedFile,
  worthBytesMin,
  type Prepared,
  type PrepareOrder,
  type WeightsApi,
} from './weights-entry.ts';

/** In the cache's folder, beside the entries. */
const sharedFolder = 'chunks';
const module = compiledModule('./weights-process.js', import.meta.url);

/** Part of every entry's name: another layout makes another entry. */
const formVersion = 3;
/** Preparing takes seconds per GiB; a process that takes this long hangs. */
const prepareMsMax = 300_000;
/** Serving has priority, and when memory runs out this process is killed first: everything works without it. */
const remote = {
  what: 'the process that prepares them',
  process: { module, niceness: niceness.background, memoryScore: 900, purpose: 'loads', hugePages: true },
};
/** A failure of disk or memory may be temporary. */
const retryMs = 60_000;
/** Files that a killed process was building are removed once it cannot be running any more. */
const buildingMsMax = 2 * prepareMsMax;

interface Failed {
  readonly state: 'failed';
  readonly reason: string;
}

type Entry =
  | { readonly state: 'preparing'; readonly path: Promise<string | undefined> }
  /** `built`: made by this host, and not found on disk. */
  | { readonly state: 'ready'; readonly path: string; readonly stamp: string; readonly built: boolean }
  /** There is nothing to share, or sharing fails; not tried again before this instant (performance.now()). */
  | { readonly state: 'unusable'; readonly untilMs: number };

export class WeightsCache {
  readonly #folder: string;
  readonly #log: (key: string, line: string) => void;
  readonly #entries = new Map<string, Entry>();
  readonly #gate: LoadGate;
  readonly #stop = new AbortController();
  #preparing = 0;

  /** @param folder gets a folder per model; other hosts may use the same cache @param gate for preparers too */
  constructor(folder: string, log: (key: string, line: string) => void, gate: LoadGate) {
    this.#folder = folder;
    this.#gate = gate;
    this.#log = log;
    removeOld(folder).catch((error: unknown) => {
      log('', `old prepared weights in ${folder} could not be removed: ${(error as Error).message}`);
    });
  }

  /**
   * The path of the prepared model; undefined if the instance should load the model itself. The first call for a model
   * waits until it is prepared or verified; later calls only check whether the files were touched.
   */
  async prepared(spec: InstanceSpec): Promise<string | undefined> {
    const { modelIdentity } = spec;
    if (modelIdentity === undefined || this.#stop.signal.aborted) return undefined;
    const folder = this.#folderOf(modelIdentity);
    const entry = this.#entries.get(folder);
    switch (entry?.state) {
      case 'unusable':
        if (performance.now() < entry.untilMs) return undefined;
        this.#entries.delete(folder);
        return this.prepared(spec);
      case 'preparing':
        return entry.path;
      case 'ready':
        if ((await stampOf(folder)) === entry.stamp) return entry.path;
        this.#log(spec.key, 'its prepared weights have changed on disk, and are checked');
        if (this.#entries.get(folder) === entry) this.#entries.delete(folder);
        return this.prepared(spec);
      case undefined: {
        // Everything works without it; a later load asks again.
        const lease = this.#gate.tryEnter(needOfPreparer(spec.modelBytes ?? 0));
        if (lease === undefined) return undefined;
        const path = this.#prepare(spec, folder, lease);
        this.#entries.set(folder, { state: 'preparing', path });
        return path;
      }
    }
  }

  /** Prepares the model in the background. Does nothing while another is being prepared: a later load asks again. */
  prepareBehind(spec: InstanceSpec): void {
    if ((spec.modelBytes ?? Infinity) < worthBytesMin) return;
    if (this.#preparing === 0 && !this.isKnown(spec)) void this.prepared(spec);
  }

  /** Whether {@link prepared} answers at once, without preparing anything. */
  isKnown({ modelIdentity }: InstanceSpec): boolean {
    return modelIdentity !== undefined && this.#entries.get(this.#folderOf(modelIdentity))?.state === 'ready';
  }

  /**
   * An instance could not load the prepared model: it is prepared again for the next one. One that was just made would
   * be refused again: ONNX Runtime does not load every graph that it has saved (branches of an `If` with weights).
   */
  refuse(spec: InstanceSpec, problem: string): void {
    if (spec.modelIdentity === undefined) return;
    const folder = this.#folderOf(spec.modelIdentity);
    const entry = this.#entries.get(folder);
    if (entry?.state !== 'ready') return;
    if (entry.built) {
      this.#log(spec.key, `its weights are not shared between instances: ${problem}`);
      this.#entries.set(folder, { state: 'unusable', untilMs: Infinity });
    } else {
      this.#log(spec.key, `its prepared weights could not be loaded, and are made anew: ${problem}`);
      this.#entries.delete(folder);
    }
    rm(join(folder, manifestFile), { force: true }).catch((error: unknown) => {
      this.#log(spec.key, `its prepared weights could not be removed: ${(error as Error).message}`);
    });
  }

  stop(): void {
    this.#stop.abort();
  }

  #folderOf(modelIdentity: string): string {
    const name = createHash('sha256')
      .update(`${formVersion}\n${processorIdentity()}\n${onnxRuntimeVersion()}\n${modelIdentity}`)
      .digest('hex');
    return join(this.#folder, name.slice(0, 32));
  }

  async #prepare(spec: InstanceSpec, folder: string, lease: Disposable): Promise<string | undefined> {
    this.#preparing++;
    const { modelPath, opening, modelBytes = 0 } = spec;
    const shared = join(this.#folder, sharedFolder);
    const outcome = await prepare({ folder, shared, modelPath, modelBytes, opening }, this.#stop.signal);
    this.#preparing--;
    lease[Symbol.dispose]();
    if (outcome.state !== 'ready') {
      const untilMs = outcome.state === 'small' ? Infinity : performance.now() + retryMs;
      this.#entries.set(folder, { state: 'unusable', untilMs });
      if (outcome.state === 'failed' && !this.#stop.signal.aborted) {
        this.#log(spec.key, `its weights are not shared between instances: ${outcome.reason}`);
      }
      return undefined;
    }
    const now = new Date();
    await utimes(join(folder, manifestFile), now, now).catch(() => undefined);
    const path = join(folder, preparedFile);
    const stamp = await stampOf(folder);
    // Without a stamp it has just been removed; the next instance has it prepared again.
    if (stamp === undefined) this.#entries.delete(folder);
    else this.#entries.set(folder, { state: 'ready', path, stamp, built: outcome.built });
    return stamp === undefined ? undefined : path;
  }
}

async function prepare(order: PrepareOrder, signal: AbortSignal): Promise<Prepared | Failed> {
  try {
    const options = { timeMsMax: prepareMsMax, stop: signal };
    return await callOnce<WeightsApi, 'prepare'>(remote, 'prepare', order, options);
  } catch (error) {
    return { state: 'failed', reason: (error as Error).message };
  }
}

/** Changes whenever one of the files does. */
async function stampOf(folder: string): Promise<string | undefined> {
  try {
    const chunks = await readdir(join(folder, chunksFolder));
    const files = [preparedFile, ...chunks.toSorted().map((chunk) => join(chunksFolder, chunk))];
    const stats = await Promise.all(files.map((file) => stat(join(folder, file))));
    return stats.map(({ ino, size, mtimeMs }) => `${ino}:${size}:${mtimeMs}`).join(' ');
  } catch {
    return undefined;
  }
}

async function removeOld(folder: string): Promise<void> {
  await removeUnused(folder, { isEntry: /^\.building-/, unusedMs: buildingMsMax });
  await removeUnused(folder, { isEntry: /^[0-9a-f]{32}$/, mark: manifestFile });
  await removeUnusedChunks(join(folder, sharedFolder));
}
