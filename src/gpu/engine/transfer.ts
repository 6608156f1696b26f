/**
 * Copies missing layers to a GPU: over its own PCIe link, or over that of another GPU, which passes each layer on as
 * soon as it has it while the next one is being copied (DeepPlan, section 4.2). Only submits work; the streams do the
 * rest.
 */
import type { ColdStartPlan } from '../../plan/index.ts';
import { getOrMake } from '../../tools/index.ts';
import type { DeviceAddress } from '../driver/types.ts';
import { alignUp } from '../program/arena.ts';
import { hostBytes, type CodedLayer } from '../program/types.ts';
import { GpuError } from '../types.ts';
import type { Anatomy } from './anatomy.ts';
import { DecodeChecks } from './coded-layers.ts';
import type { Decoder } from './decoder.ts';
import type { DeviceBlock } from './device-memory.ts';
import type { GpuLane } from './lane.ts';
import type { Residency } from './residency.ts';
import type { RunContext } from './run-context.ts';
import type { Fence, OrderedStream } from './streams.ts';

/** Weights that pass through a helping GPU, or wait to be decoded, as a ring. */
interface Staging {
  readonly lane: GpuLane;
  readonly block: DeviceBlock;
  /** Offset of the next layer. */
  at: number;
  /** Parts of the ring that are still to be read, the oldest first. */
  readonly filled: { readonly low: number; readonly high: number; readonly until: Fence }[];
  last: Fence | null;
  /** Of copies to it that were not passed on. */
  readonly left: Fence[];
}

/**
 * Of the bytes that may be under way, what a copy may bring beside its first layer: half a MiB by default. Submitting a
 * copy takes about as long as copying that much, and a network like ResNet-50 has a hundred layers that are smaller
 * (PipeSwitch, Bai et al., OSDI 2020, groups layers for the same reason).
 */
const groupShare = 1 / 512;

/**
 * The layers that one copy brings: the first of these, and small ones after it whose bytes follow on the host and on the
 * GPU alike.
 *
 * @param isOwn whether a layer comes over the GPU's own link
 */
export function copiedTogether(
  residency: Residency,
  layers: readonly number[],
  windowBytes: number,
  isOwn: (layer: number) => boolean = (): boolean => true,
): number[] {
  const { weights } = residency;
  const first = layers[0]!;
  if (isCoded(residency, first)) return [first];
  const block = residency.block(first)!;
  const apart = block.address - weights.address(first);
  let end = block.address + block.size;
  const together = [first];
  while (together.length < layers.length) {
    const next = layers[together.length]!;
    if (isCoded(residency, next)) break;
    const { address, size } = residency.block(next) ?? {};
    if (address !== end || address - weights.address(next) !== apart || !weights.isFilled(next)) break;
    if (!weights.place(next)!.isPinnedWith(weights.place(first)!)) break;
    if (address + size! - block.address - block.size > groupShare * windowBytes) break;
    if (!isOwn(next)) break;
    end = address + size!;
    together.push(next);
  }
  return together;
}

const isCoded = ({ weights }: Residency, layer: number): boolean => weights.layout.layers[layer]!.coded !== undefined;

/** What a transfer with coded layers needs to decode them. */
export interface Decoding {
  readonly decoder: Decoder;
  readonly checks: DecodeChecks;
}

/** For layers that have memory, which is freed on failure. Null where none of them is coded. @throws CudaError */
export async function decodingOf(
  { io }: RunContext,
  residency: Residency,
  layers: readonly number[],
): Promise<Decoding | null> {
  const coded = layers.filter((layer) => isCoded(residency, layer));
  if (coded.length === 0) return null;
  try {
    const decoder = await residency.lane.decoder();
    const blocks = coded.map((layer) => residency.block(layer)!);
    return { decoder, checks: await DecodeChecks.of(io, blocks) };
  } catch (error) {
    // Nothing has been brought to their memory.
    residency.release(layers);
    throw error;
  }
}

/** Limit for the memory on a helping GPU, unless one layer is larger. */
const stagingBytesMax = 64 * 2 ** 20;

export class Transfer {
  /** Layers still to be submitted, in order of execution. */
  readonly #missing: number[];
  readonly #residency: Residency;
  readonly #plan: ColdStartPlan;
  readonly #laneOf: (gpu: number) => GpuLane | undefined;
  readonly #anatomy: Anatomy | null;
  readonly #stagings = new Map<number, Staging | null>();
  readonly #decoding: Decoding | null;
  readonly #followed = new Set<OrderedStream>();
  /** Streams that carry its copies. */
  readonly streams = new Set<OrderedStream>();
  submittedBytes = 0;
  /** Bytes of copies in the current half window, and the end of the half before. */
  #windowFilled = 0;
  #window: Promise<unknown> = Promise.resolve();

  constructor(
    residency: Residency,
    plan: ColdStartPlan,
    missing: readonly number[],
    laneOf: (gpu: number) => GpuLane | undefined,
    anatomy: Anatomy | null,
    decoding: Decoding | null = null,
  ) {
    this.#residency = residency;
    this.#plan = plan;
    this.#missing = [...missing];
    this.#laneOf = laneOf;
    this.#anatomy = anatomy;
    this.#decoding = decoding;
    if (decoding !== null) residency.lane.decoding.begin(decoding.checks);
  }

  /** The layer that comes next. */
  get next(): number | undefined {
    return this.#missing[0];
  }

  /**
   * Submits the copies of the next layer, and waits if more than a window of bytes is under way. Its host memory must
   * be filled.
   */
  async submitWithin(windowBytes: number): Promise<void> {
    const before = this.submittedBytes;
    this.#submitNext(windowBytes);
    this.#windowFilled += this.submittedBytes - before;
    if (this.#windowFilled * 2 < windowBytes) return;
    this.#windowFilled = 0;
    const previous = this.#window;
    this.#window = Promise.all([...this.streams].map((stream) => stream.finished()));
    // If no caller waits for it, the end of the whole transfer reports the same failure.
    this.#window.catch(() => undefined);
    await previous;
  }

  #submitNext(windowBytes: number): void {
    const [layer] = this.#missing;
    if (layer === undefined) return;
    this.#residency.checkHas(layer);
    const startMs = performance.now();
    const { lane: primary } = this.#residency;
    const link = this.#plan.layers[layer]!.link ?? primary.index;
    const staging = link === primary.index ? null : this.#staging(link);
    const isOwn = (next: number): boolean => (this.#plan.layers[next]!.link ?? primary.index) === primary.index;
    const layers = staging === null ? copiedTogether(this.#residency, this.#missing, windowBytes, isOwn) : [layer];
    const allReady = (fence: Fence): void => layers.forEach((each) => this.#residency.setReady(each, fence));
    const { coded } = this.#residency.weights.layout.layers[layer]!;
    try {
      if (coded !== undefined) allReady(this.#copyCoded(layer, coded, staging));
      else allReady(staging === null ? this.#copyOwn(layers) : this.#copyThrough(layer, staging));
    } catch (error) {
      // They stay among the missing layers, so that their memory is freed, but only after the work submitted for them.
      const last = coded === undefined ? (staging === null ? primary.load : staging.lane.migration) : primary.migration;
      allReady(last.fence());
      staging?.left.push(staging.lane.load.fence(), staging.lane.migration.fence());
      if (coded !== undefined) this.#stagings.get(primary.index)?.left.push(primary.load.fence());
      throw error;
    }
    this.#missing.splice(0, layers.length);
    const endMs = performance.now();
    for (const each of layers) {
      this.submittedBytes += this.#residency.weights.layout.layers[each]!.bytes;
      this.#anatomy?.issued(each, startMs, endMs);
    }
  }

  /** Frees memory that was reserved without a submission, and that of rings. To be called once, at the end. */
  close(): void {
    this.#residency.release(this.#missing.splice(0));
    for (const staging of this.#stagings.values()) {
      if (staging !== null) staging.lane.pool.free(staging.block, [staging.last, ...staging.left]);
    }
    this.#stagings.clear();
    if (this.#decoding !== null) void this.#residency.lane.decoding.end(this.#decoding.checks, this.streams);
  }

  /** @param layers that lie together */
  #copyOwn(layers: readonly number[]): Fence {
    const { lane, weights } = this.#residency;
    const blocks = layers.map((layer) => this.#residency.block(layer)!);
    const [first, last] = [blocks[0]!, blocks.at(-1)!];
    const { load } = lane;
    this.#begin(lane, load);
    load.waitForAll(blocks.flatMap(({ fences }) => fences));
    const bytes = last.address + last.bytes - first.address;
    this.#timed('copy', layers, lane, () => load.cuda.copy(first.address, weights.address(layers[0]!), bytes));
    return load.fence();
  }

  #copyThrough(layer: number, staging: Staging): Fence {
    const { weights } = this.#residency;
    const { lane } = staging;
    const { load, migration } = lane;
    const block = this.#residency.block(layer)!;
    this.#begin(lane, load);
    this.#begin(lane, migration);
    const { at, overwrites } = placeInRing(staging, block.bytes);
    load.waitForAll(staging.block.fences);
    load.waitForAll(overwrites);
    const address = staging.block.address + at;
    this.#timed('copy', [layer], lane, () => load.cuda.copy(address, weights.address(layer), block.bytes));
    migration.wait(load.fence());
    migration.waitForAll(block.fences);
    this.#timed('migration', [layer], lane, () => migration.cuda.copy(block.address, address, block.bytes));
    const fence = migration.fence();
    staging.filled.push({ low: at, high: at + block.bytes, until: fence });
    staging.last = fence;
    return fence;
  }

  /** Brings a coded layer to the GPU's own ring, over either link, and decodes it from there. */
  #copyCoded(layer: number, coded: CodedLayer, staging: Staging | null): Fence {
    const { lane } = this.#residency;
    const { migration } = lane;
    const { codedBytes } = coded;
    const block = this.#residency.block(layer)!;
    const ring = this.#staging(lane.index);
    if (ring === null)
      throw new GpuError('out-of-memory', `GPU ${lane.index} has no ${codedBytes} bytes free for coded layers`);
    const { at, overwrites } = placeInRing(ring, codedBytes);
    const address = ring.block.address + at;
    const arrived = this.#bringCoded(layer, codedBytes, address, [...ring.block.fences, ...overwrites], staging);
    this.#begin(lane, migration);
    migration.wait(arrived);
    migration.waitForAll(block.fences);
    const { decoder, checks } = this.#decoding!;
    const order = { coded: address, codedBytes, pack: coded, to: block.address, failed: checks.address(block) };
    this.#timed('decode', [layer], lane, () => decoder.decode(migration.cuda, order));
    const fence = migration.fence();
    ring.filled.push({ low: at, high: at + codedBytes, until: fence });
    ring.last = fence;
    return fence;
  }

  /** @param before what must have left the place in the ring */
  #bringCoded(
    layer: number,
    bytes: number,
    to: DeviceAddress,
    before: readonly Fence[],
    staging: Staging | null,
  ): Fence {
    const { lane: primary, weights } = this.#residency;
    const lane = staging?.lane ?? primary;
    const { load, migration } = lane;
    this.#begin(lane, load);
    if (staging === null) {
      load.waitForAll(before);
      this.#timed('copy', [layer], lane, () => load.cuda.copy(to, weights.address(layer), bytes));
      return load.fence();
    }
    this.#begin(lane, migration);
    const { at, overwrites } = placeInRing(staging, bytes);
    load.waitForAll(staging.block.fences);
    load.waitForAll(overwrites);
    const address = staging.block.address + at;
    this.#timed('copy', [layer], lane, () => load.cuda.copy(address, weights.address(layer), bytes));
    migration.wait(load.fence());
    migration.waitForAll(before);
    this.#timed('migration', [layer], lane, () => migration.cuda.copy(to, address, bytes));
    const fence = migration.fence();
    staging.filled.push({ low: at, high: at + bytes, until: fence });
    staging.last = fence;
    return fence;
  }

  #begin(lane: GpuLane, stream: OrderedStream): void {
    this.streams.add(stream);
    if (this.#anatomy === null || this.#followed.has(stream)) return;
    this.#followed.add(stream);
    this.#anatomy.follow(lane, stream);
  }

  #timed(kind: 'copy' | 'migration' | 'decode', layers: readonly number[], lane: GpuLane, submit: () => void): void {
    if (this.#anatomy === null) submit();
    else this.#anatomy[kind](layers, lane, submit);
  }

  /**
   * Memory on a helping GPU, or on the GPU itself for coded layers. Null if it cannot help (no connection to the primary, or no memory); its layers then use
   * the primary's link.
   */
  #staging(gpu: number): Staging | null {
    return getOrMake(this.#stagings, gpu, () => this.#openStaging(gpu));
  }

  #openStaging(gpu: number): Staging | null {
    const lane = this.#laneOf(gpu);
    const primary = this.#residency.lane;
    const isOwn = lane === primary;
    if (lane === undefined || (!isOwn && primary.without.has('helping-gpus'))) return null;
    if (!isOwn && !lane.device.canAccessPeer(primary.device)) return null;
    const { layers } = this.#residency.weights.layout;
    const isPassing = (layer: number): boolean =>
      isOwn ? isCoded(this.#residency, layer) : this.#plan.layers[layer]!.link === gpu;
    const sizes = layers.flatMap((layer) =>
      isPassing(layer.index) && this.#residency.has(layer.index) ? [alignUp(hostBytes(layer))] : [],
    );
    const sumBytes = sizes.reduce((sum, bytes) => sum + bytes, 0);
    const leastBytes = Math.max(0, ...sizes);
    const block =
      lane.allocate([Math.max(leastBytes, Math.min(sumBytes, stagingBytesMax))], 'staging') ??
      lane.allocate([leastBytes], 'staging');
    if (block?.[0] === undefined) return null;
    if (!isOwn) lane.device.enablePeerAccess(primary.device);
    return { lane, block: block[0], at: 0, filled: [], last: null, left: [] };
  }
}

/** A layer's place in the ring, and the fences of the bytes that must have left it first. */
function placeInRing(staging: Staging, bytes: number): { readonly at: number; readonly overwrites: readonly Fence[] } {
  if (staging.at + bytes > staging.block.bytes) staging.at = 0;
  const at = staging.at;
  staging.at = alignUp(at + bytes);
  const overwrites: Fence[] = [];
  for (let index = staging.filled.length - 1; index >= 0; index--) {
    const { low, high, until } = staging.filled[index]!;
    if (low >= at + bytes || at >= high) continue;
    overwrites.push(until);
    // Later layers wait for this layer, which waited for that one.
    if (at <= low && high <= at + bytes) staging.filled.splice(index, 1);
  }
  return { at, overwrites };
}
