/**
 * What became of coded layers: the kernel that decodes one checks all of its bytes, and says in pinned memory where they
 * are wrong. That is read when a run ends, before its answer leaves. A layer that arrived wrong is copied once more as it
 * is in its files, and the run is made again. Layers are told apart by their blocks, so that whoever runs one that
 * another has loaded learns of it too.
 */
import type { DeviceAddress } from '../driver/types.ts';
import { GpuError } from '../types.ts';
import type { DeviceBlock } from './device-memory.ts';
import type { IoBuffer, IoBuffers } from './pinned-pool.ts';
import type { OrderedStream } from './streams.ts';

const wordBytes = 4;

/** A run read layers whose coded bytes had changed on their way. Its answer is not used. */
export class CodedLayersWrong extends GpuError {
  constructor(key: string, layers: number) {
    super('host-memory', `the coded bytes of ${layers} layers of function '${key}' have changed on their way`);
  }
}

/** A word in pinned memory for each coded layer of a transfer. */
export class DecodeChecks {
  readonly #blocks: readonly DeviceBlock[];
  readonly #buffer: IoBuffer;
  readonly #words: Uint32Array;
  /** Of its transfer, among those of its GPU. */
  number = 0;
  #users = 1;

  private constructor(blocks: readonly DeviceBlock[], buffer: IoBuffer) {
    const { view } = buffer;
    this.#blocks = blocks;
    this.#buffer = buffer;
    this.#words = new Uint32Array(view.buffer, view.byteOffset, blocks.length).fill(0);
  }

  /** @param blocks of coded layers */
  static async of(io: IoBuffers, blocks: readonly DeviceBlock[]): Promise<DecodeChecks> {
    return new DecodeChecks(blocks, await io.allocate(wordBytes * blocks.length));
  }

  /** Where the kernel says that a layer is wrong. */
  address(block: DeviceBlock): DeviceAddress {
    return this.#buffer.address + wordBytes * this.#blocks.indexOf(block);
  }

  /** Layers that are known to be wrong by now. */
  wrong(): DeviceBlock[] {
    return this.#blocks.filter((_, index) => this.#words[index] !== 0);
  }

  hold(): void {
    this.#users++;
  }

  leave(): void {
    if (--this.#users === 0) this.#buffer[Symbol.dispose]();
  }
}

/** Of one GPU. */
export class LaneDecoding {
  /** Of transfers under way. */
  readonly #open = new Set<DecodeChecks>();
  readonly #wrong = new WeakSet<DeviceBlock>();
  /** The last transfer that had begun when a layer was repaired: its word and those before tell of what was there before. */
  readonly #repairedAfter = new WeakMap<DeviceBlock, number>();
  #begun = 0;
  /** Nothing was ever wrong, as a rule. */
  #hasFound = false;

  begin(checks: DecodeChecks): void {
    checks.number = ++this.#begun;
    this.#open.add(checks);
  }

  /** All of a transfer is submitted to these streams. */
  async end(checks: DecodeChecks, streams: Iterable<OrderedStream>): Promise<void> {
    await Promise.allSettled([...streams].map((stream) => stream.finished()));
    this.find();
    this.#open.delete(checks);
    checks.leave();
  }

  /** Learns what is known by now of the transfers under way. */
  find(): void {
    for (const checks of this.#open) for (const block of checks.wrong()) this.#add(block, checks);
  }

  /** Whether a transfer brought what is in the block, and not a repair since. */
  #isOf({ number }: DecodeChecks, block: DeviceBlock): boolean {
    return number > (this.#repairedAfter.get(block) ?? 0);
  }

  #add(block: DeviceBlock, checks: DecodeChecks): void {
    if (!this.#isOf(checks, block)) return;
    this.#wrong.add(block);
    this.#hasFound = true;
  }

  isWrong(block: DeviceBlock | null): block is DeviceBlock {
    return this.#hasFound && block !== null && this.#wrong.has(block);
  }

  repaired(block: DeviceBlock): void {
    this.#wrong.delete(block);
    this.#repairedAfter.set(block, this.#begun);
  }

  /** For a run that has been submitted. @param blocks those that it reads */
  follow(blocks: () => readonly (DeviceBlock | null)[]): FollowedDecoding {
    if (this.#open.size === 0 && !this.#hasFound) return nothingFollowed;
    const [open, all] = [[...this.#open], blocks().filter((block) => block !== null)];
    const read = new Map(open.map((checks) => [checks, new Set(all.filter((block) => this.#isOf(checks, block)))]));
    for (const checks of open) checks.hold();
    // Transfers may have ended since the run looked for what it had to repair.
    const known = all.filter((block) => this.isWrong(block)).length;
    return {
      /** Once the run has ended: how many of its layers were wrong. */
      wrong: () => {
        let count = known;
        for (const checks of open) {
          const wrong = checks.wrong().filter((block) => read.get(checks)!.has(block));
          for (const block of wrong) this.#add(block, checks);
          count += wrong.length;
        }
        return count;
      },
      [Symbol.dispose]: () => {
        for (const checks of open) checks.leave();
      },
    };
  }
}

/** Decoding that a run may wait for. */
export interface FollowedDecoding extends Disposable {
  readonly wrong: () => number;
}

const nothingFollowed: FollowedDecoding = { wrong: () => 0, [Symbol.dispose]: () => undefined };
