/** A control group with a memory limit, if this user may make one; otherwise memory is only measured, not limited. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const root = '/sys/fs/cgroup';

export class MemoryLimit implements Disposable {
  /** `cgroup v2`, `cgroup v1`, or why there is none. */
  readonly means: string;
  readonly #folder: string | undefined;
  readonly #killsFile: string;

  constructor(bytes: number) {
    const isV2 = existsSync(join(root, 'cgroup.controllers'));
    const folder = join(isV2 ? root : join(root, 'memory'), `turntable-bench-${process.pid}`);
    this.#killsFile = join(folder, isV2 ? 'memory.events' : 'memory.oom_control');
    try {
      mkdirSync(folder);
      writeFileSync(join(folder, isV2 ? 'memory.max' : 'memory.limit_in_bytes'), String(bytes));
      this.#folder = folder;
      this.means = isV2 ? 'cgroup v2' : 'cgroup v1';
    } catch (error) {
      if (existsSync(folder)) rmdirSync(folder);
      this.means = `none: ${(error as Error).message}`;
    }
  }

  /** A command prefix that puts the following command under the limit from its start. */
  get through(): readonly string[] {
    if (this.#folder === undefined) return [];
    return ['sh', '-c', 'echo $$ > "$0" && exec "$@"', join(this.#folder, 'cgroup.procs')];
  }

  /** Processes that the limit has killed. */
  get kills(): number {
    if (this.#folder === undefined) return 0;
    return Number(/^oom_kill (\d+)/m.exec(readFileSync(this.#killsFile, 'utf8'))?.[1] ?? 0);
  }

  [Symbol.dispose](): void {
    // Its processes have been told to end; they are gone a moment later.
    for (let tries = 0; this.#folder !== undefined && tries < 50; tries++) {
      try {
        rmdirSync(this.#folder);
        return;
      } catch {
        spawnSync('sleep', ['0.1']);
      }
    }
  }
}
