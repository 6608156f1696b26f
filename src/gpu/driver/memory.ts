/** Device memory and pinned host memory. */
import { loadKoffi } from '../../process/index.ts';
import { getOrMake, given, once } from '../../tools/index.ts';
import { pin, unpin, type HeldKind, type Pinned } from './host-pages.ts';
import type { Pinner } from './pinner.ts';
import { Owned, type ContextMemory, type Session } from './session.ts';
import { misuse } from './status.ts';
import type { DeviceMemory, HostMemory } from './types.ts';

const koffi = loadKoffi();

/**
 * Node 20 aborts on a view of more than 4 GiB, and making a view of this size costs a garbage collection. So there are
 * few windows, and they are kept.
 */
const windowBytes = 1 << 30;

class NativeHostMemory extends Owned implements HostMemory {
  readonly bytes: number;
  readonly address: number;
  readonly #session: Session;
  readonly #pinner: Pinner;
  /** The context that it was made in. Any context could free it. */
  readonly #context: number;
  readonly #kind: HeldKind;
  readonly #windows = new Map<number, ArrayBuffer>();

  /** The context must be current. */
  constructor(session: Session, pinner: Pinner, context: number, { address, kind }: Pinned, bytes: number) {
    super();
    this.#session = session;
    this.#pinner = pinner;
    this.#context = context;
    this.#kind = kind;
    session.counts.hostBytes += bytes;
    session.counts.allocations++;
    this.address = address;
    this.bytes = bytes;
  }

  view(byteOffset: number, byteLength: number): Uint8Array {
    if (this.released) throw misuse('HostMemory.view', 'the host memory was released');
    if (byteOffset < 0 || byteLength < 0 || byteOffset + byteLength > this.bytes) {
      const range = `${byteOffset} to ${byteOffset + byteLength}`;
      throw misuse('HostMemory.view', `the view from ${range} is outside of the ${this.bytes} bytes of host memory`);
    }
    if (byteLength > windowBytes) {
      throw misuse('HostMemory.view', `a view of ${byteLength} bytes is over the limit of ${windowBytes} bytes`);
    }
    if (byteLength === 0) return new Uint8Array(0);
    const index = Math.floor(byteOffset / windowBytes);
    const start = index * windowBytes;
    if (byteOffset + byteLength > start + windowBytes) {
      return new Uint8Array(koffi.view(BigInt(this.address + byteOffset), byteLength));
    }
    const make = (): ArrayBuffer => koffi.view(BigInt(this.address + start), Math.min(windowBytes, this.bytes - start));
    const window = getOrMake(this.#windows, index, make);
    return new Uint8Array(window, byteOffset - start, byteLength);
  }

  protected giveBack(): void {
    this.#forget();
    const { call, status } = unpin(this.#session.driver, this.address, this.bytes, this.#kind);
    this.#session.checkRelease(call, status);
  }

  async releaseAside(): Promise<void> {
    if (!this.markReleased()) return;
    this.#forget();
    const memory = { context: this.#context, address: this.address, bytes: this.bytes, kind: this.#kind };
    const { call, status } = await this.#pinner.running.call('free', memory);
    this.#session.checkRelease(call, status);
  }

  #forget(): void {
    this.#windows.clear();
    const { counts } = this.#session;
    counts.hostBytes -= this.bytes;
    counts.allocations--;
  }
}

/** A context must be current. */
export function allocateHostMemory(session: Session, pinner: Pinner, bytes: number): HostMemory {
  const size = checkSize('cuMemHostAlloc', bytes);
  const out = { address: session.outAddress(), read: () => session.outInteger() };
  const pinned = pin(session.driver, out, size, 'allocated');
  session.check(pinned.call, pinned.status, `${size} bytes of pinned host memory`);
  return new NativeHostMemory(session, pinner, session.currentContext, pinned, size);
}

/** The same on the pinner's thread. @param address of memory to pin, where the kind is `given` */
export async function allocateHostMemoryAside(
  session: Session,
  pinner: Pinner,
  bytes: number,
  kind: HeldKind,
  address?: number,
): Promise<HostMemory> {
  const size = checkSize('cuMemHostAlloc', bytes);
  const context = session.currentContext;
  const pinned = await pinner.running.call('pin', { context, bytes: size, kind, ...given({ address }) });
  session.check(pinned.call, pinned.status, `${size} bytes of pinned host memory`);
  return new NativeHostMemory(session, pinner, context, pinned, size);
}

/** The context must be current. */
export function allocateDeviceMemory(session: Session, context: number, bytes: number, about: string): DeviceMemory {
  const { driver, counts, memories } = session;
  const size = checkSize('cuMemAlloc_v2', bytes);
  session.check('cuMemAlloc_v2', driver.cuMemAlloc_v2(session.outAddress(), size), `${size} bytes of ${about}`);
  const memory = { bytes: size, address: session.outInteger(), context };
  counts.deviceBytes += size;
  counts.allocations++;
  memories.add(memory);
  const release = once(() => {
    counts.deviceBytes -= size;
    counts.allocations--;
    memories.delete(memory);
    session.use(context);
    session.checkRelease('cuMemFree_v2', driver.cuMemFree_v2(memory.address));
  });
  return { bytes: size, address: memory.address, release, [Symbol.dispose]: release };
}

/** The context whose memory an address is in; 0 for host memory. Few memories live at a time: one for each GPU. */
export function contextOf(memories: ReadonlySet<ContextMemory>, at: number): number {
  for (const { address, bytes, context } of memories) if (at >= address && at < address + bytes) return context;
  return 0;
}

function checkSize(call: string, bytes: number): number {
  if (!Number.isSafeInteger(bytes) || bytes <= 0) throw misuse(call, `cannot allocate ${bytes} bytes`);
  return bytes;
}
