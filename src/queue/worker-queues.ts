/** The BullMQ queues that lead to the workers. */
import type { Queue } from 'bullmq';
import type { Membership } from '../fleet/index.ts';
import { openQueue } from './job-queues.ts';
import { workerQueue, type OverflowJob } from './names.ts';
import type { RedisLink } from './redis-link.ts';
import { getOrMake } from '../tools/index.ts';

export class WorkerQueues {
  readonly #link: RedisLink;
  readonly #queues = new Map<string, Queue<OverflowJob>>();

  constructor(link: RedisLink, membership: Membership) {
    this.#link = link;
    membership.follow({
      gone: ({ name }) => void this.closeTo(name),
      // A host's name is one of no queue.
      leftover: (name) => {
        if (!name.includes(':')) void this.#removeOf(name);
      },
    });
  }

  to(name: string): Queue<OverflowJob> {
    return getOrMake(this.#queues, name, () => {
      const made = openQueue<OverflowJob, unknown>(this.#link, workerQueue(name));
      // A queue that could not begin is of no more use.
      return made.on('error', () => {
        if (this.#queues.get(name) === made) this.#queues.delete(name);
      });
    });
  }

  /** The next job opens a new queue. */
  async closeTo(name: string): Promise<void> {
    const queue = this.#queues.get(name);
    this.#queues.delete(name);
    await queue?.close().catch(() => undefined);
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#queues.keys(), (name) => this.closeTo(name)));
  }

  async #removeOf(name: string): Promise<void> {
    const queue = openQueue<OverflowJob, unknown>(this.#link, workerQueue(name));
    await queue.obliterate({ force: true }).catch(() => undefined);
    await queue.close().catch(() => undefined);
  }
}
