/**
 * The memory of a host, divided once among all that take some of it. The parts sum to less than there is, unless the
 * operator's own figures do not leave enough.
 */
import { formatBytes } from '../tools/index.ts';
import { readMemory } from './memory.ts';

/** What takes memory, as `doctor` and the page name it. */
export const memoryParts = {
  host: 'the host',
  inFlight: 'bodies and replies in flight (limits.inFlight)',
  sessions: 'sessions on CPU cores (cpu.memory)',
  loads: 'loads of sessions and preparers of weights, beyond what stays',
  pinned: 'pinned host memory (gpu.hostMemory)',
  gpuProcess: 'the GPU process',
  validators: 'validators',
  cache: "the worker's cache of models on their way",
} as const;

export type MemoryPart = keyof typeof memoryParts;

export type MemoryDivision = Readonly<Record<MemoryPart, number>>;

/** What an operator sets; undefined: a part of what remains. */
export interface GivenMemory {
  readonly inFlight?: number | undefined;
  readonly sessions?: number | undefined;
  readonly pinned?: number | undefined;
}

/** What runs here: a host with or without GPUs, or a worker. */
export type MemoryUser = 'host' | 'host with GPUs' | 'worker';

export interface MemoryBudget {
  readonly totalBytes: number;
  readonly user: MemoryUser;
  readonly given: GivenMemory;
  readonly parts: MemoryDivision;
  /** Set where the parts sum to more than there is. */
  readonly warning: string | undefined;
}

const mebibyte = 2 ** 20;
/** For the kernel's own memory, files that are read again and again, and what is not known. */
const spareShare = 0.06;
/** What nobody has set gets at least this together, whatever is left. */
const restShareMin = 1 / 8;

/**
 * Weights of the parts of what remains, after processes that take about as much on a small machine as on a large one.
 * A validator holds a model about three times for a while; a session stays once and a third.
 */
const weights: Readonly<Record<MemoryUser, Partial<Record<MemoryPart, number>>>> = {
  host: { host: 4, inFlight: 8, sessions: 58, loads: 13, validators: 15 },
  'host with GPUs': { host: 4, inFlight: 7, sessions: 29, loads: 10, pinned: 34, validators: 14 },
  worker: { host: 4, inFlight: 14, sessions: 62, loads: 16, cache: 4 },
};

/** Memory of processes without any model: at most this share of what remains. */
const processes: readonly { readonly part: MemoryPart; readonly bytes: number; readonly shareMax: number }[] = [
  { part: 'host', bytes: 112 * mebibyte, shareMax: 0.16 },
  { part: 'gpuProcess', bytes: 160 * mebibyte, shareMax: 0.14 },
];

/** Divides the memory of a control group or a machine. Pure: the same figures give the same division. */
export function divideMemory(totalBytes: number, user: MemoryUser, given: GivenMemory = {}): MemoryBudget {
  const parts: Record<MemoryPart, number> = {
    host: 0,
    inFlight: 0,
    sessions: 0,
    loads: 0,
    pinned: 0,
    gpuProcess: 0,
    validators: 0,
    cache: 0,
  };
  const isGiven = new Set<MemoryPart>();
  let leftBytes = Math.max(0, totalBytes) * (1 - spareShare);
  for (const part of ['inFlight', 'sessions', 'pinned'] as const) {
    const bytes = given[part];
    // Without a GPU nothing is pinned.
    if (bytes === undefined || (part === 'pinned' && user !== 'host with GPUs')) continue;
    parts[part] = bytes;
    isGiven.add(part);
    leftBytes -= bytes;
  }
  // Without any memory they could not even begin: the warning below says that there is too much of it.
  leftBytes = Math.max(0, totalBytes * restShareMin, leftBytes);
  const remainingBytes = leftBytes;
  for (const { part, bytes, shareMax } of processes) {
    if (part === 'gpuProcess' && user !== 'host with GPUs') continue;
    parts[part] = Math.floor(Math.min(bytes, shareMax * remainingBytes));
    leftBytes -= parts[part];
  }
  const sharing = Object.entries(weights[user]).filter(([part]) => !isGiven.has(part as MemoryPart));
  const weightOfAll = sharing.reduce((sum, [, weight]) => sum + weight, 0);
  for (const [part, weight] of sharing) parts[part as MemoryPart] += Math.floor((leftBytes * weight) / weightOfAll);
  return { totalBytes, user, given, parts, warning: warningOf(totalBytes, parts, isGiven) };
}

/** The division where nobody has set anything: of commands, and of a worker. */
export const ownMemory = (user: MemoryUser): MemoryBudget => divideMemory(readMemory().ownBytes, user);

const sumOf = (parts: MemoryDivision): number => Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);

function warningOf(totalBytes: number, parts: MemoryDivision, isGiven: ReadonlySet<MemoryPart>): string | undefined {
  const sum = sumOf(parts);
  if (sum < totalBytes || isGiven.size === 0) return undefined;
  const figures = Array.from(isGiven, (part) => `${formatBytes(parts[part])} for ${memoryParts[part]}`);
  return (
    `${figures.join(' and ')} ${isGiven.size === 1 ? 'leaves' : 'leave'} too little of the ${formatBytes(totalBytes)} ` +
    'that this host may use: the kernel will end processes for memory; set less, or auto'
  );
}

/** `sessions on CPU cores (cpu.memory) 300 MB, the host 120 MB, ...`: the parts in use, the largest first. */
export function divisionText({ parts, totalBytes }: Pick<MemoryBudget, 'parts' | 'totalBytes'>): string {
  const used = Object.entries(parts)
    .filter(([, bytes]) => bytes > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([part, bytes]) => `${memoryParts[part as MemoryPart]} ${formatBytes(bytes)}`);
  return `${used.join(', ')}; ${formatBytes(Math.max(0, totalBytes - sumOf(parts)))} stay free`;
}

// Peaks, by the size of the model's file with its weights.

/** While ONNX Runtime opens a model it holds the file, its own copy and the copy in the layout of its kernels. */
const peakPerByte = 2.5;
/** What stays of it: the weights and about a third of them again, data about the graph included. */
const sessionPerByte = 1.3;
const sessionBytesMin = 128 * 1024;

/** Memory of a session of a model that was never loaded. */
export const sessionBytesOf = (modelBytes: number): number =>
  Math.max(sessionBytesMin, Math.ceil(modelBytes * sessionPerByte));

/** Most memory that a process takes while it loads a model, beyond what it had before. */
export const loadPeakBytes = (modelBytes: number): number => Math.ceil(modelBytes * peakPerByte);

/** A preparer writes a file twice the model's size besides, of which the kernel can drop nothing until it is on disk. */
const preparerPerByte = 4;

/** Most memory that a preparer of weights takes. */
export const preparerPeakBytes = (modelBytes: number): number => modelBytes * preparerPerByte;

/** A process without sessions, ONNX Runtime loaded, until one has been measured. */
export const processBytes = 32 * mebibyte;

/** A larger session has a process of its own: loading it would delay others, and its memory is freed with its process. */
export const sharedSessionBytesMax = 64 * mebibyte;

/** Sessions of models with this much in their files that stay loaded within `sessionsBytes`. */
export function sessionsThatFit(sessionsBytes: number, modelBytes: number): number {
  const bytes = sessionBytesOf(modelBytes);
  if (bytes > sharedSessionBytesMax) return Math.floor(sessionsBytes / (bytes + processBytes));
  return Math.max(0, Math.floor((sessionsBytes - processBytes) / bytes));
}

/** A process needs this much to open even a small model. */
const validatorBytesMin = 256 * mebibyte;

/** The limit of memory for one validator of several at a time. */
export function validatorLimitBytes({ parts }: Pick<MemoryBudget, 'parts'>, atOnce = 1): number {
  return Math.max(validatorBytesMin, Math.floor(parts.validators / atOnce));
}

/** Less would refuse ordinary bodies. */
const inFlightBytesMin = 16 * mebibyte;

/** `limits.inFlight` where the operator sets none. */
export const inFlightBytes = ({ parts }: Pick<MemoryBudget, 'parts'>): number =>
  Math.max(inFlightBytesMin, parts.inFlight);

/** A part whose process the kernel has ended for memory, again and again: half of it, but never less than a sixteenth. */
export function shrunkBytes(bytes: number, atStartBytes: number): number {
  return Math.max(Math.floor(bytes / 2), Math.floor(atStartBytes / 16));
}
