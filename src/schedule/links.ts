import type { ColdWay } from './offer.ts';
import type { SchedulerGpu } from './types.ts';

/**
 * PCIe links as lanes: who carries something, and until when by what is known. Links of one switch share its way to host
 * memory, so a link is slower while its neighbours are busy.
 */
export class LinkLanes {
  readonly #loads: Int32Array;
  readonly #freeMs: Float64Array;
  readonly #isUp: boolean[];
  /** Links on the same switch, by link. */
  readonly #neighbours: readonly (readonly number[])[];
  /** By link and count of busy links on its switch, how much longer a transfer takes. */
  readonly #slowdowns: readonly (readonly number[])[];

  constructor(gpus: readonly SchedulerGpu[]) {
    this.#loads = new Int32Array(gpus.length);
    this.#freeMs = new Float64Array(gpus.length);
    this.#isUp = gpus.map(() => true);
    this.#neighbours = gpus.map((gpu, link) =>
      [...gpus.keys()].filter((other) => other !== link && gpus[other]!.switch === gpu.switch),
    );
    this.#slowdowns = gpus.map(({ linkGBps, uplinkGBps }, link) =>
      Array.from({ length: this.#neighbours[link]!.length + 2 }, (_, busy) =>
        Math.max(1, (linkGBps * busy) / uplinkGBps),
      ),
    );
  }

  isIdle(link: number): boolean {
    return this.#loads[link] === 0;
  }

  /** When the link will have carried everything that is ordered. */
  freeMs(link: number): number {
    return this.#freeMs[link]!;
  }

  /** A GPU that is gone lends its link to nobody. */
  setUp(link: number, isUp: boolean): void {
    this.#isUp[link] = isUp;
  }

  /** The first way whose other links are there, and idle if that is asked for; the last takes no other links. */
  choose(ways: readonly [ColdWay, ...ColdWay[]], onlyIdle: boolean): ColdWay {
    for (const way of ways) {
      let isFree = true;
      for (let index = 1; index < way.transfers.length; index++) {
        const { link } = way.transfers[index]!;
        if (!this.#isUp[link]! || (onlyIdle && this.#loads[link] !== 0)) isFree = false;
      }
      if (isFree) return way;
    }
    return ways[ways.length - 1]!;
  }

  /** Queues a load on its links. Returns when an execution behind it can end. */
  occupy(way: ColdWay, prefix: number, nowMs: number): number {
    let readyMs = nowMs + way.coldMs[prefix]!;
    for (const { link, ms, tailMs } of way.transfers) {
      let busy = 1;
      for (const neighbour of this.#neighbours[link]!) if (this.#loads[neighbour]! > 0) busy++;
      const startMs = Math.max(nowMs, this.#freeMs[link]!);
      const endMs = startMs + ms[prefix]! * this.#slowdowns[link]![busy]!;
      this.#freeMs[link] = endMs;
      this.#loads[link]!++;
      readyMs = Math.max(readyMs, endMs + tailMs[prefix]!);
    }
    return readyMs;
  }

  release({ transfers }: ColdWay): void {
    for (const { link } of transfers) {
      const left = --this.#loads[link]!;
      if (left === 0) this.#freeMs[link] = 0;
    }
  }
}
