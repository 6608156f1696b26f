/**
 * Restrictions that a process puts on itself before it reads files from strangers: permanent, and as far as Linux
 * supports them.
 */
import { readFileSync } from 'node:fs';
import { statusBytes } from '../tools/index.ts';
import { addressOf, libcFunction, prctl } from './libc.ts';

export interface ProcessLimits {
  /** Limit of private writable memory. An allocation beyond it fails. */
  readonly memoryBytes?: number;
  /** Limit of open files and sockets. */
  readonly files?: number;
}

/** Beside models: JavaScript's heap, threads' stacks, and the runtime's own memory. */
const runtimeBytes = 2 ** 30;
const noNewPrivileges = 38;
const [dataLimit, coreLimit, filesLimit] = [2, 4, 7];

/**
 * No program that it starts gains rights, a crash leaves no image of its memory, and the limits hold for all that it
 * does.
 */
export function confine({ memoryBytes = Infinity, files = Infinity }: ProcessLimits): void {
  prctl(noNewPrivileges, 1);
  const set = libcFunction('int setrlimit(int resource, const uint64_t *limits)');
  const limit = (resource: number, most: number): void => {
    if (Number.isFinite(most)) set?.(resource, new BigUint64Array(2).fill(BigInt(Math.ceil(most))));
  };
  limit(coreLimit, 0);
  limit(filesLimit, files);
  // This process has some already, JavaScript's reserve included.
  limit(dataLimit, memoryBytes + (statusBytes('VmData') ?? 0) + runtimeBytes);
}

/**
 * System calls by architecture (asm/unistd_64.h, asm-generic/unistd.h); `audit`: the kernel's name of it
 * (linux/audit.h).
 */
const calls = {
  x64: { audit: 0xc000003e, socket: 41, clone: 56, forbidden: [57, 58, 59, 101, 310, 311, 322, 425] },
  arm64: { audit: 0xc00000b7, socket: 198, clone: 220, forbidden: [117, 221, 270, 271, 281, 425] },
} as const;
const clone3 = 435;
const seccompCall = { x64: 317, arm64: 277 } as const;

const [errorPermission, errorNoCall] = [1, 38];
const allowed = 0x7fff0000;
const refusedWith = (error: number): number => 0x00050000 | error;
const [loadWord, jumpIfEqual, jumpIfSet, jumpIfAtLeast, give] = [0x20, 0x15, 0x45, 0x35, 0x06];
const [atCall, atArchitecture, atFirstArgument] = [0, 4, 16];
const localSockets = 1;
const cloneThread = 0x10000;
/** Bit of the x32 form of calls, which have numbers of their own. */
const otherForm = 0x40000000;

/**
 * From now on this process can open no connection and start no process; local sockets and threads remain possible. What
 * is open stays open. False if the kernel or the architecture has no such filter.
 */
export function goOffline(): boolean {
  const architecture = process.arch;
  if (process.platform !== 'linux' || (architecture !== 'x64' && architecture !== 'arm64')) return false;
  const set = libcFunction('long syscall(long number, ulong operation, ulong flags, const uint64_t *program)');
  if (set === undefined) return false;
  confine({});
  const filter = filterOf(architecture);
  // struct sock_fprog: a 16-bit count, padded, and the address of the instructions.
  const program = new BigUint64Array([BigInt(filter.byteLength / 8), addressOf(filter)]);
  const [setFilter, forAllThreads] = [1, 1];
  return Number(set(seccompCall[architecture], setFilter, forAllThreads, program)) === 0;
}

/** Whether {@link goOffline} would work here. */
export function canGoOffline(): boolean {
  try {
    return process.arch in calls && readFileSync('/proc/sys/kernel/seccomp/actions_avail', 'utf8').includes('errno');
  } catch {
    return false;
  }
}

/** Instructions of the kernel's packet filter (linux/filter.h) over struct seccomp_data, each of 8 bytes. */
export function filterOf(architecture: keyof typeof calls): Buffer {
  const { audit, socket, clone, forbidden } = calls[architecture];
  const program: (readonly [code: number, value: number, ifSo: number, ifNot: number])[] = [];
  const add = (code: number, value: number, ifSo = 0, ifNot = 0): void => void program.push([code, value, ifSo, ifNot]);
  const giveIf = (code: number, value: number, outcome: number): void => {
    add(code, value, 0, 1);
    add(give, outcome);
  };
  add(loadWord, atArchitecture);
  add(jumpIfEqual, audit, 1, 0);
  add(give, refusedWith(errorPermission));
  add(loadWord, atCall);
  giveIf(jumpIfAtLeast, otherForm, refusedWith(errorPermission));
  for (const call of forbidden) giveIf(jumpIfEqual, call, refusedWith(errorPermission));
  // The flags of clone3 are in memory, which a filter cannot read; with "no such call" the C library uses the older
  // call.
  giveIf(jumpIfEqual, clone3, refusedWith(errorNoCall));
  add(jumpIfEqual, clone, 0, 4);
  add(loadWord, atFirstArgument);
  add(jumpIfSet, cloneThread, 1, 0);
  add(give, refusedWith(errorPermission));
  add(give, allowed);
  add(jumpIfEqual, socket, 0, 4);
  add(loadWord, atFirstArgument);
  add(jumpIfEqual, localSockets, 1, 0);
  add(give, refusedWith(errorPermission));
  add(give, allowed);
  add(give, allowed);
  const bytes = Buffer.alloc(8 * program.length);
  for (const [index, [code, value, ifSo, ifNot]] of program.entries()) {
    bytes.writeUInt16LE(code, 8 * index);
    bytes.writeUInt8(ifSo, 8 * index + 2);
    bytes.writeUInt8(ifNot, 8 * index + 3);
    bytes.writeUInt32LE(value >>> 0, 8 * index + 4);
  }
  return bytes;
}
