/**
 * Memory that a process shares with one child, for the tensors of their messages. Through a socket the kernel would
 * copy the tensors twice, 200 KB at a time, and wake one of the two processes for each part.
 *
 * Each side writes to an area of its own and reads from the other's. The header of a message goes through the socket
 * and says where its tensors are. The host copies the tensors when it takes a message. So the child cannot change them
 * after a check, no other process sees this memory, and no view of it outlives its child. A child may read tensors in
 * place until it has answered, since the host changes nothing before. A reader counts the messages that it has
 * released, from the first one on without a gap, and that count says which bytes are free. Counts and places come from
 * another process and are checked: a child that lies spoils only its own messages.
 */
import { closeSync, ftruncateSync } from 'node:fs';
import { createRequire } from 'node:module';
import type * as Koffi from 'koffi';
import { copyInto, TensorError, type FrameRegion, type Tensor } from '../tensor/index.ts';
import { libcFunction } from './libc.ts';

/** Address space: a page takes memory once it is written to. A tensor without room goes through the socket. */
const areaBytes = 16 * 2 ** 20;
const countsBytes = 4096;
const regionBytes = countsBytes + 2 * areaBytes;
/** Below this the socket takes a message in one go. */
const regionTensorsMin = 64 * 1024;
/** Tensors begin at multiples of this, so that elements of any type are aligned. */
const alignment = 64;
/** An area without messages for this long gives its pages back to the system, at the latest after twice as long. */
const idleMsMax = 30_000;

const [closeOnExec, allowSealing, addSeals] = [1, 2, 1033];
/** Seals that fix the size: a process that reads a page beyond the end of a file is killed. */
const sizeSeals = 1 | 2 | 4;
const [readWrite, shared, removePages] = [1 | 2, 1, 9];
/** Where the message counts of the two readers are, each in a cache line of its own. */
const [childCount, hostCount] = [0, 16];

type Side = 'host' | 'child';

const prototypes = {
  make: 'int memfd_create(const char *name, uint flags)',
  seal: 'int fcntl(int fd, int command, int seals)',
  map: 'intptr_t mmap(void *address, size_t bytes, int protection, int flags, int fd, int64_t offset)',
  unmap: 'int munmap(intptr_t address, size_t bytes)',
  advise: 'int madvise(intptr_t address, size_t bytes, int advice)',
};

function libc(name: keyof typeof prototypes): (...values: unknown[]) => unknown {
  const found = libcFunction(prototypes[name]);
  if (found === undefined) throw new Error(`this system has no ${prototypes[name]}`);
  return found;
}

/** A descriptor of new memory; the caller closes it. */
function makeMemory(): number {
  const fd = Number(libc('make')('turntable-tensors', closeOnExec | allowSealing));
  if (fd < 0) throw new Error('memfd_create failed');
  try {
    ftruncateSync(fd, regionBytes);
    if (Number(libc('seal')(fd, addSeals, sizeSeals)) !== 0) throw new Error('the size could not be sealed');
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

interface Held {
  readonly from: number;
  readonly to: number;
}

export class Region implements FrameRegion, Disposable {
  readonly #address: bigint;
  readonly #side: Side;
  /** Undefined once the memory is gone. */
  #views: { readonly counts: Int32Array; readonly own: Uint8Array; readonly other: Uint8Array } | undefined;
  /** Where messages are that the other side has not taken, in their order. */
  readonly #held: Held[] = [];
  /** How many the other side has taken, as far as this side has noticed. */
  #taken = 0;
  /** Messages from the first on that the reader has not released: whether it has. */
  readonly #reading: { isOver: boolean }[] = [];
  #idle: NodeJS.Timeout | undefined;
  #isUsed = false;

  constructor(fd: number, side: Side) {
    const address = BigInt(libc('map')(null, regionBytes, readWrite, shared, fd, 0) as number | bigint);
    if (address === -1n) throw new Error('mmap failed');
    const koffi = createRequire(import.meta.url)('koffi') as typeof Koffi;
    const buffer = koffi.view(address, regionBytes);
    const areas = [0, 1].map((at) => new Uint8Array(buffer, countsBytes + at * areaBytes, areaBytes));
    const [own, other] = side === 'host' ? areas : areas.toReversed();
    this.#address = address;
    this.#side = side;
    this.#views = { counts: new Int32Array(buffer, 0, countsBytes / 4), own: own!, other: other! };
  }

  /** Returns where the tensors are for the other side; undefined: they go through the socket. */
  put(tensors: readonly Tensor[], bytes: number): number | undefined {
    if (bytes < regionTensorsMin || this.#views === undefined) return undefined;
    const from = this.#placeFor(bytes);
    if (from === undefined) return undefined;
    const end = copyInto(this.#views.own, from, tensors);
    this.#held.push({ from, to: Math.ceil(end / alignment) * alignment });
    this.#isUsed = true;
    this.#idle ??= setInterval(() => this.#look(), idleMsMax).unref();
    return from;
  }

  /** The tensors of the next message in their place, until they are released. */
  lend(from: number, bytes: number): { readonly tensors: Uint8Array; readonly release: () => void } {
    const tensors = this.#view(from, bytes);
    const message = { isOver: false };
    this.#reading.push(message);
    const release = (): void => {
      message.isOver = true;
      this.#count();
    };
    return { tensors, release };
  }

  /** The tensors of the next message are not wanted. */
  skip(): void {
    this.#reading.push({ isOver: true });
    this.#count();
  }

  #view(from: number, bytes: number): Uint8Array {
    const other = this.#views?.other;
    if (other === undefined || from + bytes > areaBytes) {
      throw new TensorError(`a message has ${bytes} bytes at ${from} of shared memory, which has ${areaBytes}`);
    }
    return other.subarray(from, from + bytes);
  }

  /** Tells the writer how many messages from the first on are done with. */
  #count(): void {
    let over = 0;
    while (this.#reading[over]?.isOver === true) over++;
    if (over === 0) return;
    this.#reading.splice(0, over);
    const counts = this.#views?.counts;
    if (counts !== undefined) Atomics.add(counts, this.#side === 'host' ? hostCount : childCount, over);
  }

  [Symbol.dispose](): void {
    if (this.#views === undefined) return;
    clearInterval(this.#idle);
    this.#views = undefined;
    libc('unmap')(this.#address, regionBytes);
  }

  /** Begins at the front where nothing is held, so that few pages serve many messages. */
  #placeFor(bytes: number): number | undefined {
    this.#letGo();
    const [first] = this.#held;
    const last = this.#held.at(-1);
    if (first === undefined || last === undefined) return bytes <= areaBytes ? 0 : undefined;
    const isBehind = last.from >= first.from;
    if (isBehind && last.to + bytes <= areaBytes) return last.to;
    const from = isBehind ? 0 : last.to;
    return from + bytes <= first.from ? from : undefined;
  }

  /** Gives up what the other side has taken. */
  #letGo(): void {
    if (this.#views === undefined) return;
    const count = Atomics.load(this.#views.counts, this.#side === 'host' ? childCount : hostCount);
    const taken = Math.min(this.#held.length, (count - this.#taken) | 0);
    if (taken <= 0) return;
    this.#held.splice(0, taken);
    this.#taken = (this.#taken + taken) | 0;
  }

  /** Returns the pages of an area that nothing was written to for some time. */
  #look(): void {
    this.#letGo();
    if (this.#isUsed || this.#held.length > 0) {
      this.#isUsed = false;
      return;
    }
    clearInterval(this.#idle);
    this.#idle = undefined;
    const own = BigInt(countsBytes + (this.#side === 'host' ? 0 : areaBytes));
    libc('advise')(this.#address + own, areaBytes, removePages);
  }
}

/** One side's memory and, for its child, the descriptor of the same. */
export interface SharedRegion {
  readonly region: Region;
  /** To be closed when the child has it. */
  readonly fd: number;
}

/** Whether what one side writes can be read by the other. */
let isPossible: boolean | undefined;

/** Undefined where this system has no such memory, or no more of it: all tensors then go through the socket. */
export function makeRegion(): SharedRegion | undefined {
  if (isPossible === false) return undefined;
  let fd: number | undefined;
  try {
    if (isPossible === undefined) tryOut();
    isPossible = true;
    fd = makeMemory();
    return { region: new Region(fd, 'host'), fd };
  } catch {
    // Where it was possible once, descriptors or address space are short, and there may be some later.
    isPossible ??= false;
    if (fd !== undefined) closeSync(fd);
    return undefined;
  }
}

/** Tried in this process, as host and as child. */
function tryOut(): void {
  const fd = makeMemory();
  using host = new Region(fd, 'host');
  using child = new Region(fd, 'child');
  closeSync(fd);
  const data = new Uint8Array(regionTensorsMin).fill(7);
  const from = host.put([{ name: 'probe', datatype: 'UINT8', shape: [data.length], data }], data.length);
  if (from !== 0 || Buffer.compare(child.lend(from, data.length).tensors, data) !== 0)
    throw new Error('it is not shared');
}
