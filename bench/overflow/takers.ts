/** Workers whose runs are an echo, or take a given time: what the queue costs, without the noise of models. */
import { setTimeout as delay } from 'node:timers/promises';
import type { PoolInput, PoolResult } from '../../src/cpu/index.ts';
import type { FunctionOffer } from '../../src/fleet/index.ts';
import type { FunctionManifest, RemoteTaker } from '../../src/queue/index.ts';
import { Semaphore } from '../../src/tools/index.ts';

export interface Speed {
  readonly runMs: number;
  readonly loadMs: number;
  /** Functions that a worker has room for; the least recently used leaves. */
  readonly room: number;
}

/** One core: a run waits for the one before it. */
export class TimedTaker implements RemoteTaker {
  readonly cores = 1;
  readonly cacheBytes = 0;
  readonly cacheBytesMax = 0;
  readonly name: string;
  readonly #speed: Speed;
  readonly #core = new Semaphore();
  /** The least recently used first. */
  readonly #loaded = new Set<string>();
  readonly #called = new Set<string>();
  readonly #waiting: string[] = [];
  #known: readonly string[] = [];
  loads = 0;

  constructor(name: string, speed: Speed) {
    this.name = name;
    this.#speed = speed;
  }

  get held(): number {
    return this.#known.length;
  }

  revisions(): readonly string[] {
    return this.#known;
  }

  learn(manifests: readonly FunctionManifest[]): void {
    this.#known = manifests.map(({ revision }) => revision);
  }

  refresh(): void {
    // Its state is always the latest.
  }

  offer(revision: string): FunctionOffer {
    const { runMs, loadMs } = this.#speed;
    const startMs = this.#loaded.has(revision) ? 0 : loadMs;
    const willStart = this.#waiting.includes(revision) ? 0 : startMs;
    const ms = this.#called.has(revision) ? this.work().backlogMs + willStart + runMs : undefined;
    return { ms, isHeld: true, load: 0, callMs: runMs, startMs, lanes: 1 };
  }

  work(): { outstanding: number; backlogMs: number } {
    const { runMs, loadMs } = this.#speed;
    const starts = [...new Set(this.#waiting)].filter((revision) => !this.#loaded.has(revision));
    const outstanding = this.#waiting.length;
    return { outstanding, backlogMs: outstanding * runMs + starts.length * loadMs };
  }

  async run(revision: string, input: PoolInput): Promise<PoolResult> {
    const { runMs, loadMs, room } = this.#speed;
    this.#called.add(revision);
    this.#waiting.push(revision);
    try {
      return await this.#core.use(async () => {
        if (!this.#loaded.has(revision)) {
          this.loads++;
          const [oldest] = this.#loaded;
          if (this.#loaded.size >= room && oldest !== undefined) this.#loaded.delete(oldest);
          if (loadMs > 0) await delay(loadMs);
        }
        this.#loaded.delete(revision);
        this.#loaded.add(revision);
        if (runMs > 0) await delay(runMs);
        return {
          output: { kind: 'tensors', tensors: input.kind === 'tensors' ? input.tensors : [] },
          timings: { queueMs: 0, loadMs: 0, preprocessMs: 0, inferMs: runMs, postprocessMs: 0 },
          coldStart: false,
          batchSize: 1,
          instancePid: process.pid,
        };
      });
    } finally {
      this.#waiting.splice(this.#waiting.indexOf(revision), 1);
    }
  }
}
