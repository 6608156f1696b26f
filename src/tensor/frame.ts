/**
 * The wire codec: a JSON header followed by the raw bytes of the tensors it names, which is the binary form of the Open
 * Inference Protocol. Over HTTP, `Inference-Header-Content-Length` gives the header's length; on a stream (Unix sockets,
 * and values in Redis) a 12-byte prefix does:
 *
 *     uint32 LE  bytes of the JSON header
 *     uint64 LE  bytes of all tensors together
 *
 * Between processes that share memory the highest bit of the first number says that the tensors are there. Instead of them
 * come two uint32 LE: where they begin, and their bytes.
 *
 * The header lists the tensors under `tensors`, in the order of their bytes, each as
 * `{name, datatype, shape, parameters: {binary_data_size}}`.
 */
import { constants } from 'node:buffer';
import { TensorError } from './error.ts';
import { Lent } from './lent.ts';
import { copyInto, dataBytes, dataParts, lentTensor, type Tensor, isDataType, type DataType } from './tensor.ts';

/** A message between processes: free JSON fields and tensors. */
export interface Message<Header extends object = Record<string, unknown>> {
  readonly header: Header;
  readonly tensors: readonly Tensor[];
  /** Why there was no room for its tensors, which were dropped as they came. */
  readonly whyDropped?: Error;
  /** Ends the time for which its tensors may be read; undefined: they are the receiver's. Called once, in the messages' order. */
  readonly release?: () => void;
}

/** An account of memory that others share. */
export interface FrameMemory {
  /**
   * @param bytes about to come; below 0: given back
   * @throws Error if they do not fit
   */
  grow(bytes: number): void;
}

/** Frames that come in several reads count in the memory from when their header is there until they are whole. */
export interface FrameAccount<Header extends object> {
  readonly memory: FrameMemory;
  /** Whether a frame with this header counts. */
  readonly counts: (header: Header) => boolean;
}

/** Memory that both ends of a stream share, in which tensors are handed over instead of behind their header. */
export interface FrameRegion {
  /** Returns where they are for the other end; undefined: they stay in the frame. */
  put(tensors: readonly Tensor[], bytes: number): number | undefined;
  /**
   * The next message's tensors where they are, until they are released. Each message is, in any order.
   * @throws TensorError if no tensors can be there
   */
  lend(from: number, bytes: number): { readonly tensors: Uint8Array; readonly release: () => void };
  /** The next message's tensors are left out. */
  skip(): void;
}

/** A tensor in a header whose bytes follow it. */
export interface TensorHeader {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly parameters: { readonly binary_data_size: number };
}

const prefixBytes = 12;
/** Below this, one copy into one buffer is cheaper than a vectored write of several. */
const joinBytesMax = 64 * 1024;
/** Size of the memory that joined frames share until they are written. */
const slabBytes = 2 * joinBytesMax;
/** No real header is larger; the limit keeps a corrupt stream from reserving gigabytes. */
const headerBytesMax = 16 * 1024 * 1024;
/** Added to the bytes of a header whose tensors are in a {@link FrameRegion}. */
const inRegion = 2 ** 31;
const placeBytes = 8;
/**
 * At most this is reserved for a frame before it arrives. Beyond it, the buffer doubles as bytes come, which copies
 * them: 33 ms for 64 MiB. Reserved memory costs nothing until it is written.
 */
const reservedBytesMax = 128 * 1024 * 1024;
/** A read for small frames gets at least this much room. */
const readBytesMin = 64 * 1024;

/** Encodes a message as the buffers to write, in order. Large tensors are referenced, not copied. */
export function encodeMessage({ header, tensors }: Message<object>, region?: FrameRegion): Uint8Array[] {
  let tensorBytes = 0;
  for (const tensor of tensors) tensorBytes += dataBytes(tensor);
  const text = tensors.length === 0 ? JSON.stringify(header) : withTensors(JSON.stringify(header), tensors);
  const textBytes = Buffer.byteLength(text);
  // Elements of any type are read where they are if the frame is aligned in the memory of its reader.
  const headerBytes = aligned(prefixBytes + textBytes) - prefixBytes;
  const json = text + spaces.slice(0, headerBytes - textBytes);
  const place = region?.put(tensors, tensorBytes);
  if (place !== undefined) {
    const frame = reserve(prefixBytes + headerBytes + placeBytes);
    frame.writeUInt32LE(inRegion + headerBytes, 0);
    frame.writeUInt32LE(placeBytes, 4);
    frame.writeUInt32LE(0, 8);
    frame.write(json, prefixBytes, 'utf8');
    frame.writeUInt32LE(place, prefixBytes + headerBytes);
    frame.writeUInt32LE(tensorBytes, prefixBytes + headerBytes + 4);
    return [frame];
  }
  const joined = tensorBytes <= joinBytesMax;
  const first = reserve(prefixBytes + headerBytes + (joined ? tensorBytes : 0));
  first.writeUInt32LE(headerBytes, 0);
  first.writeUInt32LE(tensorBytes % 2 ** 32, 4);
  first.writeUInt32LE(Math.floor(tensorBytes / 2 ** 32), 8);
  first.write(json, prefixBytes, 'utf8');
  if (!joined) return [first, ...tensors.flatMap(dataParts)];
  copyInto(first, prefixBytes + headerBytes, tensors);
  return [first];
}

const alignment = 8;
const spaces = ' '.repeat(alignment);
const aligned = (bytes: number): number => Math.ceil(bytes / alignment) * alignment;

/** The text of a {@link TensorHeader}. Written by hand: JSON.stringify on objects costs three times as much. */
export function tensorHeaderText(tensor: Tensor): string {
  const { name, datatype, shape } = tensor;
  const size = `"parameters":{"binary_data_size":${dataBytes(tensor)}}`;
  return `{"name":${JSON.stringify(name)},"datatype":"${datatype}","shape":[${shape.join(',')}],${size}}`;
}

/** The header's text with its tensors as one more member. */
function withTensors(header: string, tensors: readonly Tensor[]): string {
  let text = header.slice(0, -1);
  let before = `${header === '{}' ? '' : ','}"tensors":[`;
  for (const tensor of tensors) {
    text += before + tensorHeaderText(tensor);
    before = ',';
  }
  return `${text}]}`;
}

/** Outgoing frames share a slab: for a small one, its own allocation would cost as much as all the rest. */
let slab = Buffer.alloc(0);
let slabUsedBytes = 0;

function reserve(bytes: number): Buffer {
  if (bytes > slabBytes) return Buffer.allocUnsafeSlow(bytes);
  if (slabUsedBytes + bytes > slab.byteLength) {
    slab = Buffer.allocUnsafeSlow(slabBytes);
    slabUsedBytes = 0;
  }
  return slab.subarray(slabUsedBytes, (slabUsedBytes += bytes));
}

/**
 * The system has taken all of a frame: the next one is written over it, if it was the latest. New memory for each frame
 * costs a page fault for each 4 KiB of it.
 */
export function reuse({ buffer, byteOffset, byteLength }: Uint8Array): void {
  if (buffer === slab.buffer && byteOffset + byteLength === slabUsedBytes) slabUsedBytes = byteOffset;
}

/**
 * The message with tensors of the receiver's own, and nothing to release. Each has memory of its own, so that it can be
 * freed when its last reader is done, whatever else came with it.
 */
export function owned<Header extends object>({ header, tensors, release }: Message<Header>): Message<Header> {
  if (release === undefined) return { header, tensors };
  const copies = tensors.map((tensor) => ({ ...tensor, data: Buffer.from(tensor.data) }));
  release();
  return { header, tensors: copies };
}

/** Copying less costs next to nothing. */
const lentBytesMin = 64 * 1024;

/** A message whose large tensors are lent instead of copied. It is released when the last of them is given back. */
export function lendOut<Header extends object>(message: Message<Header>): Message<Header> {
  const { header, tensors, release } = message;
  if (release === undefined) return message;
  const all: Lent[] = [];
  let left = 1;
  const giveBack = (): void => {
    left--;
    if (left === 0) release();
  };
  const given = tensors.map(({ name, datatype, shape, data }): Tensor => {
    if (data.byteLength < lentBytesMin) return { name, datatype, shape, data: Buffer.from(data) };
    left++;
    const lent = new Lent(data, giveBack);
    all.push(lent);
    return lentTensor({ name, datatype, shape }, lent);
  });
  giveBack();
  if (all.length > 0) setImmediate(() => all.forEach((lent) => lent.settle()));
  return { header, tensors: given };
}

/** Cuts the tensors that `described` names from `payload`, as views. */
export function sliceTensors(described: unknown, payload: Uint8Array): Tensor[] {
  if (described === undefined) {
    if (payload.byteLength > 0)
      throw new TensorError(`${payload.byteLength} bytes follow a header that names no tensors`);
    return [];
  }
  if (!Array.isArray(described)) throw new TensorError(`'tensors' in a message header is not an array`);
  let at = 0;
  const tensors = described.map((entry: DeepPartial<TensorHeader> | null): Tensor => {
    const { name, datatype, shape, parameters } = entry ?? {};
    const size = parameters?.binary_data_size;
    if (typeof name !== 'string') throw new TensorError('a tensor in a message header has no name');
    if (!isDataType(datatype)) throw new TensorError(`tensor '${name}' has the unknown datatype '${String(datatype)}'`);
    if (!Array.isArray(shape) || !shape.every(isSize) || !isSize(size)) {
      throw new TensorError(
        `tensor '${name}' in a message header has no shape or no binary_data_size of whole numbers`,
      );
    }
    if (at + size > payload.byteLength) {
      throw new TensorError(`tensor '${name}' takes ${size} bytes, but only ${payload.byteLength - at} are left`);
    }
    const data = payload.subarray(at, at + size);
    at += size;
    return { name, datatype, shape, data };
  });
  if (at !== payload.byteLength) {
    throw new TensorError(`${payload.byteLength - at} bytes follow the last tensor of a message`);
  }
  return tensors;
}

type DeepPartial<Value> = Value extends object ? { readonly [Key in keyof Value]?: DeepPartial<Value[Key]> } : Value;

const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Decodes one whole message, such as a value in Redis. */
export function decodeMessage<Header extends object>(bytes: Uint8Array): Message<Header> {
  const messages = new FrameDecoder<Header>().push(bytes);
  const [message] = messages;
  if (messages.length !== 1 || message === undefined) {
    throw new TensorError(`expected one whole message, found ${messages.length}`);
  }
  return message;
}

/**
 * Cuts a byte stream into messages. Tensors of a frame that arrived in one chunk are views on that chunk; a frame in
 * several chunks is gathered once into its own buffer, and is there already if it was read into {@link space}. Throws
 * {@link TensorError} if the stream is not in the wire form; the decoder cannot be used after that.
 */
export class FrameDecoder<Header extends object = Record<string, unknown>> {
  /** Bytes received of the current frame; for a long frame a buffer of its whole size, filled as they come. */
  #front: Buffer = Buffer.alloc(0);
  #filledBytes = 0;
  /** Bytes of the current frame that must be there before parsing goes on. */
  #neededBytes = prefixBytes;
  readonly #known = new KnownHeaders<Header>();
  /** Where small frames are read to, side by side. */
  #slab: Buffer = nothing;
  readonly #account: FrameAccount<Header> | undefined;
  readonly #region: FrameRegion | undefined;
  readonly #lends: boolean;
  /** Bytes for which the current frame counts; undefined until its header is there. */
  #countedBytes: number | undefined;
  #dropping: { readonly header: Header; readonly whyDropped: Error; leftBytes: number } | undefined;

  /**
   * @param account default: there is always room
   * @param region where the tensors of some messages are
   * @param lends they are read there, and each message that has some is released; else they are copied
   */
  constructor(account?: FrameAccount<Header>, region?: FrameRegion, lends = false) {
    this.#account = account;
    this.#region = region;
    this.#lends = lends;
  }

  /** The stream has ended: the rest of a frame never comes. */
  close(): void {
    this.#giveBack();
  }

  /**
   * Memory to read the next bytes of the stream into; {@link filled} must follow. The rest of a long frame comes into the
   * frame's own buffer: with reads of 64 KiB that were copied together, an answer of 120 KB took 350 us of CPU, not 225.
   */
  space(): Buffer {
    if (this.#dropping !== undefined) {
      dropped ??= Buffer.allocUnsafeSlow(readBytesMin);
      return dropped.subarray(0, this.#dropping.leftBytes);
    }
    const isLong = this.#isGathering && this.#neededBytes - this.#filledBytes > readBytesMin;
    if (isLong && this.#front.byteLength === this.#filledBytes) this.#reserve(1);
    if (this.#front.byteLength > this.#filledBytes) return this.#front.subarray(this.#filledBytes);
    if (this.#slab.byteLength < readBytesMin) this.#slab = Buffer.allocUnsafeSlow(4 * readBytesMin);
    return this.#slab;
  }

  /** So many bytes were read into {@link space}. Returns the messages that are now complete. */
  filled(bytes: number): Message<Header>[] {
    const space = this.space();
    const messages = this.push(space.subarray(0, bytes));
    if (space === this.#slab) this.#slab = space.subarray(this.idle ? aligned(bytes) : bytes);
    return messages;
  }

  /** Takes the next chunk and returns the messages that are now complete. */
  push(chunk: Uint8Array): Message<Header>[] {
    const messages: Message<Header>[] = [];
    let rest = this.#take(this.#drop(asBuffer(chunk), messages));
    while (this.#filledBytes >= this.#neededBytes) {
      const front = this.#front.subarray(0, this.#filledBytes);
      const first = front.readUInt32LE(0);
      const region = first >= inRegion ? this.#region : undefined;
      const headerBytes = region === undefined ? first : first - inRegion;
      const tensorBytes = front.readUInt32LE(4) + front.readUInt32LE(8) * 2 ** 32;
      if (headerBytes > headerBytesMax)
        throw new TensorError(`a message header of ${headerBytes} bytes is over the limit`);
      const frameBytes = prefixBytes + headerBytes + tensorBytes;
      if (frameBytes > constants.MAX_LENGTH)
        throw new TensorError(`a message of ${frameBytes} bytes is over the limit`);
      if (front.byteLength < frameBytes) {
        const account = this.#countedBytes === undefined ? this.#account : undefined;
        const hasHeader = front.byteLength >= prefixBytes + headerBytes;
        this.#neededBytes = account === undefined || hasHeader ? frameBytes : prefixBytes + headerBytes;
        if (account !== undefined && hasHeader) {
          const { header } = this.#known.read(front.subarray(prefixBytes, prefixBytes + headerBytes));
          const whyDropped = this.#count(account, header, frameBytes);
          if (whyDropped !== undefined) {
            this.#dropping = { header, whyDropped, leftBytes: frameBytes - front.byteLength };
            this.#front = nothing;
            this.#filledBytes = 0;
            this.#neededBytes = prefixBytes;
            rest = this.#drop(rest, messages);
          }
        }
        rest = this.#take(rest);
        continue;
      }
      this.#giveBack();
      const headerEnd = prefixBytes + headerBytes;
      const { header, described } = this.#known.read(front.subarray(prefixBytes, headerEnd));
      const payload = front.subarray(headerEnd, frameBytes);
      messages.push(
        region === undefined
          ? { header, tensors: sliceTensors(described, payload) }
          : this.#fetch(region, { header, described }, payload),
      );
      const behind = front.subarray(frameBytes);
      // A view of no bytes would keep all of a long frame until the next one comes.
      this.#front = behind.byteLength === 0 ? nothing : behind;
      this.#filledBytes = behind.byteLength;
      this.#neededBytes = prefixBytes;
      rest = this.#take(rest);
    }
    return messages;
  }

  /** True between messages: if the stream ends here, nothing was lost. */
  get idle(): boolean {
    return this.#filledBytes === 0 && this.#dropping === undefined;
  }

  /** The size of the current frame is known, and it is not whole. */
  get #isGathering(): boolean {
    return this.#neededBytes > prefixBytes && this.#neededBytes > this.#filledBytes;
  }

  /** The message whose tensors are in the region, at a place. */
  #fetch(region: FrameRegion, { header, described }: FrameHeader<Header>, place: Buffer): Message<Header> {
    if (place.byteLength !== placeBytes) throw new TensorError('a message has no place in the shared memory');
    const [from, bytes] = [place.readUInt32LE(0), place.readUInt32LE(4)];
    const whyDropped = this.#account && this.#count(this.#account, header, bytes);
    this.#giveBack();
    if (whyDropped !== undefined) {
      region.skip();
      return { header, tensors: [], whyDropped };
    }
    const { tensors, release } = region.lend(from, bytes);
    const lent = { header, tensors: sliceTensors(described, tensors), release };
    return this.#lends ? lent : owned(lent);
  }

  /** Returns why there is no room for it. */
  #count({ memory, counts }: FrameAccount<Header>, header: Header, frameBytes: number): Error | undefined {
    const bytes = counts(header) ? frameBytes : 0;
    try {
      if (bytes > 0) memory.grow(bytes);
      this.#countedBytes = bytes;
      return undefined;
    } catch (error) {
      return error as Error;
    }
  }

  /** From now on its bytes count where its receiver counts them. */
  #giveBack(): void {
    const bytes = this.#countedBytes ?? 0;
    this.#countedBytes = undefined;
    if (bytes > 0) this.#account!.memory.grow(-bytes);
  }

  /** Leaves out what belongs to a frame that has no room. Returns the rest. */
  #drop(chunk: Buffer, messages: Message<Header>[]): Buffer {
    if (this.#dropping === undefined) return chunk;
    const { header, whyDropped, leftBytes } = this.#dropping;
    this.#dropping.leftBytes -= Math.min(leftBytes, chunk.byteLength);
    if (chunk.byteLength < leftBytes) return nothing;
    this.#dropping = undefined;
    messages.push({ header, tensors: [], whyDropped });
    return chunk.subarray(leftBytes);
  }

  #reserve(bytes: number): void {
    const worthBytes = Math.max(reservedBytesMax, 2 * (this.#filledBytes + bytes));
    const larger = Buffer.allocUnsafeSlow(Math.min(this.#neededBytes, worthBytes));
    this.#front.copy(larger, 0, 0, this.#filledBytes);
    this.#front = larger;
  }

  /**
   * Adds a chunk to the current frame. If the frame's size is known, its bytes go into one buffer of that size, so that
   * its last byte causes no copy; a size that is only claimed reserves no gigabytes. Returns the rest of the chunk.
   */
  #take(chunk: Buffer): Buffer {
    if (chunk.byteLength === 0) return chunk;
    if (this.#filledBytes === 0) {
      this.#front = chunk;
      this.#filledBytes = chunk.byteLength;
      return nothing;
    }
    if (this.#isBehindFront(chunk)) {
      const { buffer, byteOffset, byteLength } = this.#front;
      this.#filledBytes += chunk.byteLength;
      this.#front = Buffer.from(buffer, byteOffset, Math.max(byteLength, this.#filledBytes));
      return nothing;
    }
    if (!this.#isGathering) {
      this.#front = Buffer.concat([this.#front.subarray(0, this.#filledBytes), chunk]);
      this.#filledBytes += chunk.byteLength;
      return nothing;
    }
    const taken = Math.min(this.#neededBytes - this.#filledBytes, chunk.byteLength);
    if (this.#front.byteLength < this.#filledBytes + taken) this.#reserve(taken);
    chunk.copy(this.#front, this.#filledBytes, 0, taken);
    this.#filledBytes += taken;
    return chunk.subarray(taken);
  }

  /** Whether a chunk was read to the place directly behind the bytes so far. */
  #isBehindFront({ buffer, byteOffset }: Buffer): boolean {
    return buffer === this.#front.buffer && byteOffset === this.#front.byteOffset + this.#filledBytes;
  }
}

const nothing = Buffer.alloc(0);
/** Memory for frames that are read only to be dropped. */
let dropped: Buffer | undefined;

interface FrameHeader<Header extends object> {
  readonly header: Header;
  /** The header's list of tensors, for {@link sliceTensors}. */
  readonly described: unknown;
}

const knownHeadersMax = 64;
const knownHeaderBytesMax = 4096;
const unlikelyHeaders = 1024;

/**
 * The headers of one stream by their bytes. Calls of a function have the same header again and again, and parsing it
 * costs more than all other work on a small frame. Messages share these headers, so callers must not change them.
 */
class KnownHeaders<Header extends object> {
  readonly #known = new Map<string, FrameHeader<Header>>();
  #hits = 0;
  /** Headers that are parsed without a look, after many of which none repeated: a start registers hundreds of functions. */
  #unlikely = 0;

  /** @param bytes of the JSON */
  read(bytes: Buffer): FrameHeader<Header> {
    if (bytes.byteLength > knownHeaderBytesMax) return parseHeader(bytes);
    if (this.#unlikely > 0) {
      this.#unlikely--;
      return parseHeader(bytes);
    }
    const text = bytes.toString('latin1');
    let known = this.#known.get(text);
    if (known !== undefined) {
      this.#hits++;
      return known;
    }
    if (this.#known.size === knownHeadersMax) {
      if (this.#hits === 0) this.#unlikely = unlikelyHeaders;
      this.#hits = 0;
      this.#known.clear();
    }
    known = parseHeader(bytes);
    this.#known.set(text, known);
    return known;
  }
}

function parseHeader<Header extends object>(bytes: Buffer): FrameHeader<Header> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new TensorError(`a message header is not JSON: ${(error as Error).message}`);
  }
  if (typeof parsed !== 'object' || parsed === null) throw new TensorError('a message header is not a JSON object');
  const header = parsed as { tensors?: unknown };
  const described = header.tensors;
  // Not deleted by copying: a copy would cost as much as parsing.
  header.tensors = undefined;
  return { header: header as Header, described };
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
