/**
 * A control group with a limit of memory, and of cores if asked, if this user may make one; otherwise memory is only
 * measured, not limited.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const root = '/sys/fs/cgroup';
const periodUs = 100_000;

let made = 0;

export class MemoryLimit implements Disposable {
  /** `cgroup v2`, `cgroup v1`, or why there is none. */
  readonly means: string;
  /** With version 1 there may be one for each controller. */
  readonly #folders: string[] = [];
  readonly #killsFile: string;

  constructor(bytes: number, cores?: number) {
    const isV2 = existsSync(join(root, 'cgroup.controllers'));
    const name = `turntable-bench-${process.pid}-${++made}`;
    const folder = join(isV2 ? root : join(root, 'memory'), name);
    this.#killsFile = join(folder, isV2 ? 'memory.events' : 'memory.oom_control');
    try {
      this.#make(folder, isV2 ? 'memory.max' : 'memory.limit_in_bytes', bytes);
      if (cores !== undefined) {
        const quotaUs = Math.round(cores * periodUs);
        if (isV2) writeFileSync(join(folder, 'cpu.max'), `${quotaUs} ${periodUs}`);
        else this.#make(join(root, 'cpu', name), 'cpu.cfs_quota_us', quotaUs);
      }
      this.means = isV2 ? 'cgroup v2' : 'cgroup v1';
    } catch (error) {
      this[Symbol.dispose]();
      this.means = `none: ${(error as Error).message}`;
    }
  }

  /** Whether there is a limit. */
  get holds(): boolean {
    return this.#folders.length > 0;
  }

  /** A command prefix that puts the following command under the limit from its start. */
  get through(): readonly string[] {
    if (!this.holds) return [];
    const enter = this.#folders.map((folder) => `echo $$ > '${join(folder, 'cgroup.procs')}' && `).join('');
    return ['sh', '-c', `${enter}exec "$0" "$@"`];
  }

  /** Processes that the limit has killed. */
  get kills(): number {
    if (!this.holds) return 0;
    return Number(/^oom_kill (\d+)/m.exec(readFileSync(this.#killsFile, 'utf8'))?.[1] ?? 0);
  }

  [Symbol.dispose](): void {
    // Its processes have been told to end; they are gone a moment later.
    for (let tries = 0; this.holds && tries < 50; tries++) {
      try {
        rmdirSync(this.#folders.at(-1)!);
        this.#folders.pop();
      } catch {
        spawnSync('sleep', ['0.1']);
      }
    }
  }

  #make(folder: string, file: string, value: number): void {
    mkdirSync(folder);
    this.#folders.push(folder);
    writeFileSync(join(folder, file), String(value));
  }
}
