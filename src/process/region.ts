/**
 * Memory that a process shares with one child, for the tensors of their messages. Through a socket the kernel would
 * copy the tensors twice, 200 KB at a time, and wake one of the two processes for each part.
 *
 * Each side writes to an area of its own and reads from the other's. The header of a message goes through the socket
 * and says where its tensors are. The host copies a tensor before it reads it, so the child cannot change it after a
 * check. Only a reply that a client's socket takes at once is written from here (`src/tensor/lent.ts`). No other process
 * sees this memory. A child may read tensors in place until it has answered, and longer on a lease, since the host
 * changes nothing before. It may also reserve room for its answer and have that written there, by a GPU. A reader counts
 * the messages that it has released, from the first one on without a gap, and that count says which bytes are free.
 * Counts and places come from another process and are checked: a child that lies spoils only its own messages.
 */
import { closeSync, ftruncateSync } from 'node:fs';
import { copyInto, dataParts, TensorError, type FrameRegion, type Tensor } from '../tensor/index.ts';
import { once } from '../tools/index.ts';
import { libcFunction, loadKoffi } from './libc.ts';

/** Address space: a page takes memory once it is written to. A tensor without room goes through the socket. */
const areaBytes = 16 * 2 ** 20;
const countsBytes = 4096;
const regionBytes = countsBytes + 2 * areaBytes;
/** Below this the socket takes a message in one go. */
const regionTensorsMin = 64 * 1024;
/** Tensors begin at multiples of this, so that elements of any type are aligned. */
const alignment = 64;
/** Room behind what is reserved, for small tensors of the same message. */
const besideBytes = 64;
/** An area without messages for this long gives its pages back to the system, at the latest after twice as long. */
const idleMsMax = 30_000;

const [closeOnExec, allowSealing, addSeals] = [1, 2, 1033];
/** Seals that fix the size: a process that reads a page beyond the end of a file is killed. */
const sizeSeals = 1 | 2 | 4;
const [readWrite, shared, removePages] = [1 | 2, 1, 9];
/** Where the message counts of the two readers are, each in a cache line of its own. */
const [childCount, hostCount] = [0, 16];
/** Whether the child has pinned the area that a side writes to: then its pages cannot be given back. */
const pinnedFlags = { host: 32, child: 33 };

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

interface Block {
  readonly from: number;
  readonly to: number;
}

/** A message that is being read. */
interface Reading extends Block {
  leases: number;
}

/** Bytes that stay as they are, or that nobody else writes, until it is disposed of. */
export interface Lease extends Disposable {
  readonly address: number;
}

/** Room for the tensors of a message. */
export interface Reservation extends Lease {
  /**
   * A message of tensors that fill it from its beginning, without gaps, is sent without copying them. Small ones that are
   * elsewhere may follow.
   */
  readonly view: Uint8Array;
}

/** An area of shared memory, for a driver that pins it. */
export interface SharedArea {
  readonly address: number;
  readonly bytes: number;
  /** The area's pages stay in place from then on, or may be given back. Its writer does that when it holds no message. */
  setPinned(isPinned: boolean): void;
}

/** The memory that a child shares with the process that started it, as seen by the child. */
export interface SharedMemory {
  /** What the child reads, and what it writes. */
  readonly areas: { readonly read: SharedArea; readonly written: SharedArea };
  /** Keeps bytes of a message that is not released yet; undefined: the bytes are elsewhere. */
  lease(data: Uint8Array): Lease | undefined;
  /** Undefined: there is no room, or a socket takes so few bytes in one go. */
  reserve(bytes: number): Reservation | undefined;
}

export class Region implements FrameRegion, SharedMemory, Disposable {
  readonly areas: SharedMemory['areas'];
  readonly #address: bigint;
  readonly #side: Side;
  /** Undefined once the memory is gone. */
  #views: { readonly counts: Int32Array; readonly own: Uint8Array; readonly other: Uint8Array } | undefined;
  /** Where this side's tensors are, by their place: those reserved, and those of messages that the other side has not taken. */
  readonly #blocks: Block[] = [];
  readonly #reserved = new Set<Block>();
  /** Of the messages that the other side has not taken, in their order. */
  readonly #sent: Block[] = [];
  /** How many the other side has taken, as far as this side has noticed. */
  #taken = 0;
  /** Messages from the first on that the reader has not released. */
  readonly #reading: Reading[] = [];
  #idle: NodeJS.Timeout | undefined;
  #isUsed = false;
  #isMapped = true;

  constructor(fd: number, side: Side) {
    const address = BigInt(libc('map')(null, regionBytes, readWrite, shared, fd, 0) as number | bigint);
    if (address === -1n) throw new Error('mmap failed');
    const buffer = loadKoffi().view(address, regionBytes);
    const areas = [0, 1].map((at) => new Uint8Array(buffer, countsBytes + at * areaBytes, areaBytes));
    const [own, other] = side === 'host' ? areas : areas.toReversed();
    this.#address = address;
    this.#side = side;
    const counts = new Int32Array(buffer, 0, countsBytes / 4);
    this.#views = { counts, own: own!, other: other! };
    const area = (of: Side): SharedArea => ({
      address: this.#addressOf(of === side ? own! : other!),
      bytes: areaBytes,
      setPinned: (isPinned) => void Atomics.store(counts, pinnedFlags[of], Number(isPinned)),
    });
    this.areas = { read: area(side === 'host' ? 'child' : 'host'), written: area(side) };
  }

  #addressOf({ byteOffset }: Uint8Array): number {
    return Number(this.#address) + byteOffset;
  }

  /** Returns where the tensors are for the other side; undefined: they go through the socket. */
  put(tensors: readonly Tensor[], bytes: number): number | undefined {
    if (bytes < regionTensorsMin || this.#views === undefined) return undefined;
    let block = this.#reservedFor(tensors);
    if (block === undefined) {
      block = this.#hold(bytes);
      if (block === undefined) return undefined;
      copyInto(this.#views.own, block.from, tensors);
    }
    this.#reserved.delete(block);
    this.#sent.push(block);
    return block.from;
  }

  reserve(bytes: number): Reservation | undefined {
    if (bytes < regionTensorsMin || this.#views === undefined) return undefined;
    const block = this.#hold(bytes + besideBytes);
    if (block === undefined) return undefined;
    this.#reserved.add(block);
    const view = this.#views.own.subarray(block.from, block.from + bytes);
    // What a message has taken over is free when the other side has taken that.
    const dispose = (): void => void (this.#reserved.delete(block) && this.#free(block));
    return { address: this.#addressOf(view), view, [Symbol.dispose]: dispose };
  }

  /** The reservation that tensors fill without gaps, with those behind them that are elsewhere copied to their place. */
  #reservedFor(tensors: readonly Tensor[]): Block | undefined {
    if (this.#reserved.size === 0) return undefined;
    const { own } = this.#views!;
    const parts = tensors.flatMap(dataParts);
    const from = parts[0]!.byteOffset - own.byteOffset;
    let end = from;
    let there = 0;
    for (; parts[there]?.buffer === own.buffer && parts[there]!.byteOffset === own.byteOffset + end; there++)
      end += parts[there]!.byteLength;
    const rest = parts.slice(there);
    const restBytes = rest.reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (there === 0) return undefined;
    const block = [...this.#reserved].find((each) => each.from === from && end + restBytes <= each.to);
    if (block === undefined) return undefined;
    for (const part of rest) {
      own.set(part, end);
      end += part.byteLength;
    }
    return block;
  }

  /** The tensors of the next message in their place, until they are released. */
  lend(from: number, bytes: number): { readonly tensors: Uint8Array; readonly release: () => void } {
    const tensors = this.#view(from, bytes);
    const message = { from, to: from + bytes, leases: 0 };
    this.#reading.push(message);
    return { tensors, release: this.#leaseOf(message) };
  }

  lease(data: Uint8Array): Lease | undefined {
    const other = this.#views?.other;
    if (data.buffer !== other?.buffer) return undefined;
    const at = data.byteOffset - other.byteOffset;
    const message = this.#reading.find(
      ({ from, to, leases }) => leases > 0 && from <= at && at + data.byteLength <= to,
    );
    return message && { address: this.#addressOf(data), [Symbol.dispose]: this.#leaseOf(message) };
  }

  /** Returns what ends it. A message is released when none is left. */
  #leaseOf(message: Reading): () => void {
    message.leases++;
    return once(() => {
      message.leases--;
      this.#count();
    });
  }

  /** The tensors of the next message are not wanted. */
  skip(): void {
    this.#reading.push({ from: 0, to: 0, leases: 0 });
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
    while (this.#reading[over]?.leases === 0) over++;
    if (over === 0) return;
    this.#reading.splice(0, over);
    if (this.#views === undefined) this.#unmap();
    else Atomics.add(this.#views.counts, this.#side === 'host' ? hostCount : childCount, over);
  }

  [Symbol.dispose](): void {
    if (this.#views === undefined) return;
    clearInterval(this.#idle);
    this.#views = undefined;
    this.#unmap();
  }

  /** Once nothing reads there any more: it would end this process, or find other memory at the address. */
  #unmap(): void {
    if (this.#reading.length > 0 || !this.#isMapped) return;
    this.#isMapped = false;
    libc('unmap')(this.#address, regionBytes);
  }

  /** The first gap that is large enough: few pages serve many messages. */
  #hold(bytes: number): Block | undefined {
    this.#letGo();
    const alignedBytes = Math.ceil(bytes / alignment) * alignment;
    let from = 0;
    let index = 0;
    for (const block of this.#blocks) {
      if (from + alignedBytes <= block.from) break;
      from = block.to;
      index++;
    }
    if (from + alignedBytes > areaBytes) return undefined;
    const block = { from, to: from + alignedBytes };
    this.#blocks.splice(index, 0, block);
    this.#isUsed = true;
    this.#idle ??= setInterval(() => this.#look(), idleMsMax).unref();
    return block;
  }

  #free(block: Block): void {
    this.#blocks.splice(this.#blocks.indexOf(block), 1);
  }

  /** Gives up what the other side has taken. */
  #letGo(): void {
    if (this.#views === undefined) return;
    const count = Atomics.load(this.#views.counts, this.#side === 'host' ? childCount : hostCount);
    const taken = Math.min(this.#sent.length, (count - this.#taken) | 0);
    if (taken <= 0) return;
    for (const block of this.#sent.splice(0, taken)) this.#free(block);
    this.#taken = (this.#taken + taken) | 0;
  }

  /** Returns the pages of an area that nothing was written to for some time. */
  #look(): void {
    this.#letGo();
    const isPinned = this.#views !== undefined && Atomics.load(this.#views.counts, pinnedFlags[this.#side]) !== 0;
    if (this.#isUsed || this.#blocks.length > 0 || isPinned) {
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
