/** The data folder: its layout, and the lock that reserves it for one host. */
import { randomBytes } from 'node:crypto';
import { cp, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { encodeName, FolderStore, type Store } from '../../store/index.ts';
import { hasCode, jsonAs, makeFolders, namesInFolder, readTextIfThere, synced } from '../../tools/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { migrateData, type FormatOutcome } from './data-format.ts';
import { onDisk, overwriteFile, removeTree, tidy } from './disk.ts';

/**
 * In the names of functions and versions, capitals are encoded (src/store/entry-names.ts).
 *
 * ```
 * store.json                    the format of all this
 * blobs/sha256/<hex>            every stored file, once
 * entries/<name>/<n>.json       what is said about a function: versions, settings, traffic (src/store)
 * functions/<name>/<version>/   the files of a published version: links to its blobs; a model in chunks (src/store/chunks.ts)
 * staging/<random>/             uploads under way and versions being removed; emptied at start
 * validated/<hex>.json          models that the validator accepted
 * rows/<hex>.json               whether rows of the models are independent of each other
 * handlers/<name>-<hash>.mjs    compiled handlers of folder functions
 * cache/weights, cache/gpu       what is prepared of models for CPU instances and GPUs (src/cpu, src/gpu)
 * known/<name>.json             what a store on another machine had of a function, as last read
 * host.lock                     which process uses the folder
 * ```
 */
export class DataFolder {
  readonly root: string;
  /** It is in the same folder. */
  readonly store: Store;
  readonly blobs: string;
  readonly functions: string;
  readonly staging: string;
  readonly validated: string;
  readonly rows: string;
  readonly handlers: string;
  readonly known: string;
  readonly cache: string;

  constructor(dataDir: string) {
    this.root = resolve(dataDir);
    this.store = new FolderStore(this.root);
    this.blobs = join(this.root, 'blobs');
    this.functions = join(this.root, 'functions');
    this.staging = join(this.root, 'staging');
    this.validated = join(this.root, 'validated');
    this.rows = join(this.root, 'rows');
    this.handlers = join(this.root, 'handlers');
    this.known = join(this.root, 'known');
    this.cache = join(this.root, 'cache');
  }

  /**
   * Makes the folders, takes the lock, migrates an older format and empties staging. Throws ConfigError if another live
   * process has the lock, or the folder is of a newer format.
   */
  async open(): Promise<FormatOutcome> {
    try {
      await makeFolders(this.root);
    } catch (error) {
      const reason = hasCode(error, 'EEXIST', 'ENOTDIR') ? 'a file is in its way' : (error as Error).message;
      throw new ConfigError(`the data folder ${this.root} cannot be made: ${reason}; choose another with --data`, {
        cause: error,
      });
    }
    await takeLock(this.root);
    let outcome: FormatOutcome;
    try {
      outcome = await migrateData(this.root);
    } catch (error) {
      await this.close();
      throw error;
    }
    for (const folder of [this.functions, this.staging, this.validated, this.rows, this.handlers]) {
      await mkdir(folder, { recursive: true });
    }
    await tidy(async () => {
      for (const name of await namesInFolder(this.staging)) await removeTree(join(this.staging, name));
    });
    return outcome;
  }

  /**
   * Releases the lock. After a kill the lock stays, and the next host recognizes it as stale. The file is kept: on a
   * disk that is full by then a new one could not be written.
   */
  async close(): Promise<void> {
    try {
      await overwriteFile(join(this.root, 'host.lock'), '{}');
    } catch (error) {
      if (!hasCode(error, 'ENOENT', 'EROFS')) throw error;
    }
  }

  /** The folder of a published function, with its versions. */
  functionFolder(name: string): string {
    return join(this.functions, encodeName(name));
  }

  versionFolder(name: string, version: string): string {
    return join(this.functionFolder(name), encodeName(version));
  }

  /** An unused path in staging. */
  stagingPath(): string {
    return join(this.staging, randomBytes(12).toString('hex'));
  }
}

/**
 * Moves a data folder from where an earlier version kept it. Does nothing if there is none, if the new place is in use,
 * or if a host still uses the folder. Returns whether it was moved.
 */
export async function moveData(from: string, to: string): Promise<boolean> {
  if ((await namesInFolder(join(from, 'functions'))).length === 0 || (await namesInFolder(to)).length > 0) return false;
  const holder = parseLock(await readTextIfThere(join(from, 'host.lock')));
  if (holder !== undefined && (await isRunning(holder))) {
    throw new ConfigError(`the data folder moves from ${from} to ${to}, but process ${holder.pid} still uses it`);
  }
  await mkdir(dirname(to), { recursive: true });
  await rm(to, { recursive: true, force: true });
  try {
    await rename(from, to);
  } catch (error) {
    if (!hasCode(error, 'EXDEV')) throw error;
    // To another disk: copied completely under another name first, so that a kill leaves the old folder or the new one.
    const half = `${to}.moving`;
    await rm(half, { recursive: true, force: true });
    await cp(from, half, { recursive: true, preserveTimestamps: true });
    await rename(half, to);
    await removeTree(from);
  }
  return true;
}

interface Lock {
  readonly pid: number;
  /** Distinguishes a process from a later one with the same id; undefined if /proc cannot tell. */
  readonly started: string | undefined;
}

/**
 * The lock names the process that uses the folder; it need not be removed: after a kill the next host sees that the
 * process is gone. It cannot see processes of another machine or container.
 */
async function takeLock(root: string): Promise<void> {
  const path = join(root, 'host.lock');
  const text = JSON.stringify({ pid: process.pid, started: await startOf(process.pid) } satisfies Lock);
  try {
    await synced(path, 'wx', async (handle) => await onDisk(() => handle.writeFile(text)));
    return;
  } catch (error) {
    if (!hasCode(error, 'EEXIST', 'EROFS')) throw error;
  }
  const holder = parseLock(await readTextIfThere(path));
  if (holder !== undefined && holder.pid !== process.pid && (await isRunning(holder))) {
    throw new ConfigError(
      `the data folder ${root} is in use by another host (process ${holder.pid}); choose another with --data`,
    );
  }
  try {
    await overwriteFile(path, text);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) {
      throw new ConfigError(
        `the data folder ${root} is on a read-only disk, and no host has used it before; choose another with --data`,
      );
    }
    if (!hasCode(error, 'EROFS')) throw error; // A folder that cannot be written needs no lock.
  }
}

const parseLock = (text: string | undefined): Lock | undefined =>
  jsonAs(text, (lock: Lock) => (Number.isSafeInteger(lock.pid) && lock.pid > 0 ? lock : undefined));

async function isRunning({ pid, started }: Lock): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (!hasCode(error, 'EPERM')) return false;
  }
  return started === (await startOf(pid));
}

/** Boot and start time of a process, from /proc/<pid>/stat: field 22, behind a name that may contain brackets. */
async function startOf(pid: number): Promise<string | undefined> {
  try {
    const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    return `${boot} ${ticks}`;
  } catch {
    return undefined;
  }
}
