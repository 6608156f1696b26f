/**
 * Room on the first GPU, and in host memory, for a function that does not serve there yet: to be compared with ONNX
 * Runtime, or measured.
 */
import { GpuError, type GpuClient } from '../../gpu/index.ts';
import { Semaphore } from '../../tools/index.ts';
import type { LiveScheduler } from '../../live/index.ts';
import { unlessItDied } from './unless-it-died.ts';

export interface RoomWanted<T> {
  readonly key: string;
  readonly bytes: number;
  readonly scheduler: LiveScheduler;
  /** Called before each attempt; the queue goes on meanwhile. */
  readonly ready: () => Promise<void>;
  /** Called when it is this function's turn; throws if the work was overtaken. */
  readonly begin: () => Promise<void>;
  /** What others of the same content have found out meanwhile: then no room is made, and the work is not done again. */
  readonly known?: () => Promise<T | undefined>;
}

const attemptsMax = 3;

export class Room {
  readonly #client: Pick<GpuClient, 'evict'>;
  /** The scheduler does not know of these weights, and those of two functions may not fit together. */
  readonly #turns = new Semaphore(1);

  constructor(client: Pick<GpuClient, 'evict'>) {
    this.#client = client;
  }

  /** Layers loaded by the work are freed afterwards. @throws GpuError, and what the work and the callbacks throw */
  async use<T>({ key, bytes, scheduler, ready, begin, known }: RoomWanted<T>, work: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      await ready();
      try {
        return await this.#turns.use(async () => {
          await begin();
          const found = await known?.();
          if (found !== undefined) return found;
          using _held = await inHostMemory(scheduler, key);
          await scheduler.freeBytes(0, key, bytes);
          try {
            return await work();
          } finally {
            await unlessItDied(this.#client.evict(key, 0));
          }
        });
      } catch (error) {
        // An invocation that came meanwhile may have taken the room, or layers that it shares may have gone with others.
        const isTaken = error instanceof GpuError && ['out-of-memory', 'host-memory', 'cancelled'].includes(error.code);
        if (!isTaken || attempt === attemptsMax) throw error;
      }
    }
  }
}

/** Has a function in host memory until the result is disposed of. @throws GpuError */
export async function inHostMemory(scheduler: LiveScheduler, key: string): Promise<Disposable> {
  const held = await scheduler.holdInHost(key);
  if (held === 'gone') throw new GpuError('died', `the GPU process knows no function '${key}' any more`);
  if (held !== 'too large') return held;
  throw new GpuError(
    'host-memory',
    `the weights of function '${key}' take more pinned host memory than there can be for it (gpu.hostMemory)`,
  );
}
