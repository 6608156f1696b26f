/**
 * The inner side: what a module does that runs in a process or thread of its own, and that it never outlives its
 * parent.
 */
import { closeSync } from 'node:fs';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { FrameDecoder, type Message } from '../tensor/index.ts';
import { frameReader, frameWriter, openSocket, portChannel, type Channel } from './channel.ts';
import { confine, type ProcessLimits } from './confine.ts';
import { prctl } from './libc.ts';
import { Region, type SharedMemory } from './region.ts';

/** The variable that tells a process how it was {@link Started}; deleted from its environment once read. */
export const startedVariable = 'TURNTABLE_STARTED';

export interface Started {
  /** Which process started it. */
  readonly parent: number;
  readonly limits: ProcessLimits;
  /** The two share memory, whose descriptor it was given. */
  readonly hasRegion: boolean;
}

export interface ThreadData {
  /** Its first value is not 0: take no more messages. */
  readonly stop: Int32Array;
}

const socketFd = 3;
const regionFd = 4;
const lookMs = 1000;
const setParentDeathSignal = 1;
const sigkill = 9;

/**
 * The channel to the parent of this process or thread. Call it once.
 *
 * @param lends tensors in memory that the two share are read in place: `take` has each message released
 */
export function parentChannel<Out extends object, In extends object>(
  take: (message: Message<In>) => void,
  { lends = false } = {},
): Channel<Out> & { readonly memory?: SharedMemory } {
  if (!isMainThread && parentPort !== null) return portChannel<Out, In>(parentPort, take);
  const text = process.env[startedVariable];
  delete process.env[startedVariable];
  const { parent, limits, hasRegion }: Started =
    text === undefined ? { parent: process.ppid, limits: {}, hasRegion: false } : (JSON.parse(text) as Started);
  endWithParent(parent);
  confine(limits);
  const region = hasRegion ? openRegion() : undefined;
  const decoder = new FrameDecoder<In>(undefined, region, lends);
  const socket = openSocket(socketFd, frameReader(decoder, { message: take, unreadable: endNow }));
  socket.on('close', endNow);
  socket.on('error', endNow);
  // A terminal, or a service manager, signals all processes; the host decides when this one ends.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => undefined);
  const channel = frameWriter<Out>(socket, region);
  return region === undefined ? channel : { ...channel, memory: region };
}

/** Closed at once: processes that this one starts get nothing of it. */
function openRegion(): Region {
  const region = new Region(regionFd, 'child');
  closeSync(regionFd);
  return region;
}

/** Whether this thread was told to end, and must leave before its next message. */
export function isToldToEnd(): boolean {
  return Atomics.load((workerData as ThreadData).stop, 0) !== 0;
}

/** Lets this thread run out. */
export function leave(): void {
  parentPort?.close();
}

/** Not by exit, which would take native libraries down in the middle of a call, with a message and a core file. */
function endNow(): void {
  process.kill(process.pid, 'SIGKILL');
}

/**
 * In a native call, or in a handler that never returns, this process does not see that its socket has closed. So the
 * kernel is asked to end it with the thread that started it; if the kernel cannot, a thread checks periodically.
 */
function endWithParent(parent: number): void {
  if (prctl(setParentDeathSignal, sigkill) === 0) {
    // The parent may have gone before the kernel was asked.
    if (process.ppid !== parent) endNow();
    return;
  }
  const end = `if (process.ppid !== ${parent}) process.kill(process.pid, 'SIGKILL');`;
  const look = `setInterval(() => { ${end} }, ${lookMs});`;
  new Worker(look, {
    eval: true,
    resourceLimits: { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 2 },
  }).unref();
}
