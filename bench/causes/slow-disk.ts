/** Lets a host read from its disk only slowly. Needs Linux, a disk of its own below the folder, and the right to limit it. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { descendants, type StartedServer } from '../servers.ts';

const execute = promisify(execFile);
const groups = '/sys/fs/cgroup';
/** Version 1 of control groups has a folder for each controller. */
const root = existsSync(join(groups, 'blkio')) ? join(groups, 'blkio') : groups;

export class SlowDisk implements Disposable {
  readonly #group: string;
  readonly #folder: string;
  #pids: readonly number[] = [];

  private constructor(folder: string, group: string) {
    this.#folder = folder;
    this.#group = group;
  }

  /** Undefined if this user may not limit the folder's disk. */
  static limit(folder: string, bytesPerSecond: number): SlowDisk | undefined {
    const disk = new SlowDisk(folder, join(root, `turntable-causes-${process.pid}`));
    try {
      mkdirSync(disk.#group, { recursive: true });
      const device = deviceOf(folder);
      if (root === groups) writeFileSync(join(disk.#group, 'io.max'), `${device} rbps=${bytesPerSecond}`);
      else writeFileSync(join(disk.#group, 'blkio.throttle.read_bps_device'), `${device} ${bytesPerSecond}`);
      return disk;
    } catch {
      disk[Symbol.dispose]();
      return undefined;
    }
  }

  async slowDown({ process: child }: StartedServer): Promise<void> {
    this.#pids = [child.pid!, ...(await descendants(child.pid!))];
    this.#moveTo(this.#group);
  }

  /** The next reader of any file in the folder reads it from the disk. */
  async forget(): Promise<void> {
    const files = readdirSync(this.#folder, { recursive: true, withFileTypes: true }).filter((file) => file.isFile());
    // What is not written yet stays in memory.
    await execute('sync', ['--file-system', this.#folder]);
    for (const { parentPath, name } of files)
      await execute('dd', [`if=${join(parentPath, name)}`, 'of=/dev/null', 'iflag=nocache', 'count=0']).catch(
        () => null,
      );
  }

  [Symbol.dispose](): void {
    this.#moveTo(root);
    try {
      rmdirSync(this.#group);
    } catch {
      // It never came to be, or a process that the host has started since is still in it: the next run takes it.
    }
  }

  #moveTo(group: string): void {
    for (const pid of this.#pids) {
      try {
        writeFileSync(join(group, 'cgroup.procs'), String(pid));
      } catch {
        // It has ended.
      }
    }
  }
}

/** `254:0`, of the whole disk. */
function deviceOf(folder: string): string {
  const { dev } = statSync(folder);
  const device = `${(dev >> 8) & 0xfff}:${(dev & 0xff) | ((dev >> 12) & 0xfff00)}`;
  const isPart = existsSync(`/sys/dev/block/${device}/partition`);
  return isPart ? readFileSync(`/sys/dev/block/${device}/../dev`, 'utf8').trim() : device;
}
