/** The data folder: its layout, and the lock that keeps it with one host. */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { ConfigError } from '../config-error.ts';
import { hasCode, namesIn, readTextIfThere, removeTree, replaceFile, unlinkIfThere, writeFileDurably } from './disk.ts';

/**
 * ```
 * blobs/sha256/<hex>            every stored file, once
 * functions/<name>/<version>/   a published version: links to its blobs, and version.json
 * staging/<random>/             uploads under way and versions being removed; emptied at start
 * validated/<hex>.json          models that the validator accepted
 * handlers/<name>-<hash>.mjs    compiled handlers of folder functions
 * host.lock                     which process uses the folder
 * ```
 */
export class DataFolder {
  readonly root: string;
  readonly blobs: string;
  readonly functions: string;
  readonly staging: string;
  readonly validated: string;
  readonly handlers: string;

  constructor(dataDir: string) {
    this.root = resolve(dataDir);
    this.blobs = join(this.root, 'blobs');
    this.functions = join(this.root, 'functions');
    this.staging = join(this.root, 'staging');
    this.validated = join(this.root, 'validated');
    this.handlers = join(this.root, 'handlers');
  }

  /** Makes the folders, takes the lock and empties staging. Throws when another live process has the lock. */
  async open(): Promise<void> {
    await mkdir(this.root, { recursive: true });
    await takeLock(this.root);
    for (const folder of [this.functions, this.staging, this.validated, this.handlers]) {
      await mkdir(folder, { recursive: true });
    }
    for (const name of await namesIn(this.staging)) await removeTree(join(this.staging, name));
  }

  /** Gives the lock back. A host that is killed instead leaves a lock that the next one sees through. */
  async close(): Promise<void> {
    await unlinkIfThere(join(this.root, 'host.lock'));
  }

  /** A published function: a folder of its versions. */
  functionFolder(name: string): string {
    return join(this.functions, name);
  }

  versionFolder(name: string, version: string): string {
    return join(this.functions, name, version);
  }

  /** A path in staging that nothing has yet. */
  stagingPath(): string {
    return join(this.staging, randomBytes(12).toString('hex'));
  }
}

interface Lock {
  readonly pid: number;
  /** Tells a process from a later one that was given the same number; undefined where /proc cannot say. */
  readonly started: string | undefined;
}

/**
 * The lock is a note of who uses the folder, not a file that must be removed: a kill leaves it behind and the next host
 * sees that its process is gone. It cannot see processes of another machine or container.
 */
async function takeLock(root: string): Promise<void> {
  const path = join(root, 'host.lock');
  const text = JSON.stringify({ pid: process.pid, started: await startOf(process.pid) } satisfies Lock);
  try {
    await writeFileDurably(path, text);
    return;
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
  const holder = parseLock(await readTextIfThere(path));
  if (holder !== undefined && holder.pid !== process.pid && (await isRunning(holder))) {
    throw new ConfigError(
      `the data folder ${root} is in use by another host (process ${holder.pid}); choose another with --data`,
    );
  }
  await replaceFile(path, text);
}

function parseLock(text: string | undefined): Lock | undefined {
  try {
    const lock = JSON.parse(text ?? '') as Lock;
    return Number.isSafeInteger(lock.pid) && lock.pid > 0 ? lock : undefined;
  } catch {
    return undefined;
  }
}

async function isRunning({ pid, started }: Lock): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (!hasCode(error, 'EPERM')) return false;
  }
  return started === (await startOf(pid));
}

/** Boot and start time of a process, from /proc/<pid>/stat (field 22; the name in field 2 may hold blanks and brackets). */
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
