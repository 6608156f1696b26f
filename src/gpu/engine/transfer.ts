/**
 * Copies missing layers to a GPU: over its own PCIe link, or over that of another GPU, which passes each layer on as
 * soon as it has it while the next one is being copied (DeepPlan, section 4.2). Only submits work; the streams do the
 * rest.
 */
import type { ColdStartPlan } from '../../plan/index.ts';
import { getOrMake } from '../../tools/index.ts';
import type { DeviceAddress } from '../driver/types.ts';
import { alignUp } from '../program/arena.ts';
import { hostBytes } from '../program/types.ts';
import { GpuError } from '../types.ts';
import type { Anatomy } from './anatomy.ts';
import { DecodeChecks } from './coded-layers.ts';
import { CopyGroups, isCoded } from './copy-groups.ts';
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

/** Where bytes stop on their way from host memory: a place in a ring, or the places of their layers. */
interface Stop {
  readonly address: DeviceAddress;
  /** Must have ended before they are written. */
  readonly before: readonly Fence[];
  readonly ring: Staging | null;
}

export class Transfer {
  /** Layers still to be submitted, in order of execution. */
  readonly #missing: number[];
  readonly #context: RunContext;
  readonly #residency: Residency;
  readonly #plan: ColdStartPlan;
  readonly #groups: CopyGroups;
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
    context: RunContext,
    residency: Residency,
    plan: ColdStartPlan,
    missing: readonly number[],
    decoding: Decoding | null,
    anatomy: Anatomy | null = null,
  ) {
    this.#context = context;
    this.#residency = residency;
    this.#plan = plan;
    this.#missing = [...missing];
    this.#anatomy = anatomy;
    this.#decoding = decoding;
    const isOwn = (layer: number): boolean => this.#link(layer) === null;
    this.#groups = new CopyGroups(residency, { layers: missing, windowBytes: context.windowBytes, isOwn });
    if (decoding !== null) residency.lane.decoding.begin(decoding.checks);
  }

  /** The layer that comes next. */
  get next(): number | undefined {
    return this.#missing[0];
  }

  /**
   * Submits the copy of the next layers, and waits if more than a window of bytes is under way. The first one's host
   * memory must be filled.
   */
  async submit(): Promise<void> {
    const before = this.submittedBytes;
    this.#submitNext();
    this.#windowFilled += this.submittedBytes - before;
    if (this.#windowFilled * 2 < this.#context.windowBytes) return;
    this.#windowFilled = 0;
    const previous = this.#window;
    this.#window = Promise.all([...this.streams].map((stream) => stream.finished()));
    // If no caller waits for it, the end of the whole transfer reports the same failure.
    this.#window.catch(() => undefined);
    await previous;
  }

  /** The ring of the GPU whose link a layer takes; null where that is the GPU's own link. */
  #link(layer: number): Staging | null {
    const { index } = this.#residency.lane;
    const link = this.#plan.layers[layer]!.link ?? index;
    return link === index ? null : this.#staging(link);
  }

  #submitNext(): void {
    const [layer] = this.#missing;
    if (layer === undefined) return;
    this.#residency.checkHas(layer);
    const startMs = performance.now();
    const { lane: primary } = this.#residency;
    const through = this.#link(layer);
    const ring = isCoded(this.#residency, layer) ? this.#ring(layer) : null;
    // Half of the ring is decoded while the other half is filled.
    const layers = this.#groups.next(this.#missing, (ring?.block.bytes ?? 0) / 2);
    const allReady = (fence: Fence): void => layers.forEach((each) => this.#residency.setReady(each, fence));
    try {
      allReady(this.#bring(layers, through, ring));
    } catch (error) {
      // They stay among the missing layers, so that their memory is freed, but only after the work submitted for them.
      const last = ring !== null ? primary.migration : through !== null ? through.lane.migration : primary.load;
      allReady(last.fence());
      for (const each of new Set([through, ring])) {
        for (const lane of new Set([primary, through?.lane ?? primary]))
          each?.left.push(lane.load.fence(), lane.migration.fence());
      }
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

  /**
   * Brings layers that lie together in host memory to their places: through another GPU's ring, or over the GPU's own
   * link, and coded ones through the GPU's own ring. Returns when they are there.
   */
  #bring(layers: readonly number[], through: Staging | null, ring: Staging | null): Fence {
    const { lane: primary, weights } = this.#residency;
    const bytes = this.#groups.spanBytes(layers);
    const host = weights.address(layers[0]!);
    const blocks = layers.map((layer) => this.#residency.block(layer)!);
    const before = blocks.flatMap(({ fences }) => fences);
    const own: Stop = ring === null ? { address: blocks[0]!.address, before, ring } : stopIn(ring, bytes);
    const move = (kind: 'copy' | 'migration', lane: GpuLane, from: DeviceAddress, to: Stop, after?: Fence): Fence => {
      const stream = kind === 'copy' ? lane.load : lane.migration;
      this.#begin(lane, stream);
      if (after !== undefined) stream.wait(after);
      stream.waitForAll(to.before);
      this.#timed(kind, layers, lane, () => stream.cuda.copy(to.address, from, bytes));
      return stream.fence();
    };
    let arrived: Fence;
    if (through === null) arrived = move('copy', primary, host, own);
    else {
      const stop = stopIn(through, bytes);
      const passing = move('copy', through.lane, host, stop);
      arrived = move('migration', through.lane, stop.address, own, passing);
      leaves(stop, bytes, arrived);
    }
    if (ring === null) return arrived;
    const { migration } = primary;
    this.#begin(primary, migration);
    migration.wait(arrived);
    migration.waitForAll(before);
    for (const [index, layer] of layers.entries()) {
      const coded = own.address + weights.address(layer) - host;
      this.#timed('decode', [layer], primary, () => this.#decode(layer, coded, blocks[index]!));
    }
    const decoded = migration.fence();
    leaves(own, bytes, decoded);
    return decoded;
  }

  #decode(layer: number, coded: DeviceAddress, block: DeviceBlock): void {
    const { lane, weights } = this.#residency;
    const { decoder, checks } = this.#decoding!;
    const pack = weights.layout.layers[layer]!.coded!;
    const failed = checks.address(block);
    decoder.decode(lane.migration.cuda, { coded, codedBytes: pack.codedBytes, pack, to: block.address, failed });
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

  /** The GPU's own ring. @throws GpuError 'out-of-memory' */
  #ring(layer: number): Staging {
    const { index } = this.#residency.lane;
    const ring = this.#staging(index);
    if (ring !== null) return ring;
    const bytes = hostBytes(this.#residency.weights.layout.layers[layer]!);
    throw new GpuError('out-of-memory', `GPU ${index} has no ${bytes} bytes free for coded layers`);
  }

  /**
   * Memory on a helping GPU, or on the GPU itself for coded layers. Null if it cannot help (no connection to the
   * primary, or no memory); its layers then use the primary's link.
   */
  #staging(gpu: number): Staging | null {
    return getOrMake(this.#stagings, gpu, () => this.#openStaging(gpu));
  }

  #openStaging(gpu: number): Staging | null {
    const lane = this.#context.lane(gpu);
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

/** The next place in a ring. The bytes that are there must have left it first. */
function stopIn(ring: Staging, bytes: number): Stop {
  if (ring.at + bytes > ring.block.bytes) ring.at = 0;
  const at = ring.at;
  ring.at = alignUp(at + bytes);
  const before = [...ring.block.fences];
  for (let index = ring.filled.length - 1; index >= 0; index--) {
    const { low, high, until } = ring.filled[index]!;
    if (low >= at + bytes || at >= high) continue;
    before.push(until);
    // Later layers wait for this layer, which waited for that one.
    if (at <= low && high <= at + bytes) ring.filled.splice(index, 1);
  }
  return { address: ring.block.address + at, before, ring };
}

/** The bytes of a stop in a ring are read until then. */
function leaves({ address, ring }: Stop, bytes: number, until: Fence): void {
  if (ring === null) return;
  const low = address - ring.block.address;
  ring.filled.push({ low, high: low + bytes, until });
  ring.last = until;
}
