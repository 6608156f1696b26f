/**
 * Pinned host memory whose pages exist before the driver pins them. The driver holds its locks while it pins, and the
 * calls of all other threads wait. `cuMemHostAlloc` also makes the pages under these locks, which takes most of its
 * time. PyTorch's setting `pinned_use_cuda_host_register` does the same.
 */
import { libcFunction } from '../../process/index.ts';
import type { Calls, driverFunctions } from './declarations.ts';
import type { PinnedKind } from './types.ts';

/** cuMemHostAlloc and cuMemHostRegister: usable by all contexts, and mapped into the devices' address space. */
const portable = 1;
const deviceMap = 2;
const pinFlags = portable | deviceMap;

const outOfMemory = 2;
/**
 * INVALID_VALUE, OS_CALL_FAILED, NOT_PERMITTED and NOT_SUPPORTED: a driver that cannot register this memory. It may
 * still allocate pinned memory itself.
 */
const refusals = new Set([1, 304, 800, 801]);

/** How it is freed: memory that others have mapped stays mapped. */
export type HeldKind = PinnedKind | 'given';

export interface Pinned {
  readonly call:
    'cuCtxSetCurrent' | 'cuMemHostAlloc' | 'cuMemHostRegister_v2' | 'cuMemFreeHost' | 'cuMemHostUnregister';
  readonly status: number;
  /** 0 unless memory was pinned. */
  readonly address: number;
  readonly kind: HeldKind;
}

export type PinCall = 'cuMemHostAlloc' | 'cuMemFreeHost' | 'cuMemHostRegister_v2' | 'cuMemHostUnregister';
type PinCalls = { readonly [Call in PinCall]: (...given: Parameters<Calls<typeof driverFunctions>[Call]>) => number };

/** An out-parameter for an address: where the driver writes it, and a way to read it. */
export interface OutAddress {
  readonly address: number;
  readonly read: () => number;
}

/** Pins memory of others, which `unpin` leaves mapped. A context must be current. */
export function pinGiven(driver: PinCalls, address: number, bytes: number): Pinned {
  populate(address, bytes);
  const status = driver.cuMemHostRegister_v2(address, bytes, pinFlags);
  return { call: 'cuMemHostRegister_v2', status, address: status === 0 ? address : 0, kind: 'given' };
}

/** A context must be current. If the driver refuses to register memory, it allocates instead. */
export function pin(driver: PinCalls, out: OutAddress, bytes: number, kind: PinnedKind): Pinned {
  if (kind === 'registered') {
    const address = mapPages(bytes);
    if (address === undefined) return { call: 'cuMemHostRegister_v2', status: outOfMemory, address: 0, kind };
    const status = address === 0 ? 1 : driver.cuMemHostRegister_v2(address, bytes, pinFlags);
    if (status === 0) return { call: 'cuMemHostRegister_v2', status, address, kind };
    if (address !== 0) unmapPages(address, bytes);
    if (!refusals.has(status)) return { call: 'cuMemHostRegister_v2', status, address: 0, kind };
  }
  const status = driver.cuMemHostAlloc(out.address, bytes, pinFlags);
  return { call: 'cuMemHostAlloc', status, address: status === 0 ? out.read() : 0, kind: 'allocated' };
}

/** A context must be current. */
export function unpin(driver: PinCalls, address: number, bytes: number, kind: HeldKind): Pinned {
  if (kind === 'allocated') return { call: 'cuMemFreeHost', status: driver.cuMemFreeHost(address), address: 0, kind };
  const status = driver.cuMemHostUnregister(address);
  // After a failure the driver may still have the pages pinned: they stay mapped.
  if (status === 0 && kind === 'registered') unmapPages(address, bytes);
  return { call: 'cuMemHostUnregister', status, address: 0, kind };
}

const readAndWrite = 3;
const privateAnonymous = 0x22;
const populateWrite = 23;
/**
 * A fork copies pinned pages at once, lest a device write to those of the other process: 10 GB took 6 s, in which no
 * other thread could map memory.
 */
const notInForks = 10;
/** Small steps, since the process's memory map is locked during each and other threads change it as well. */
const populateBytes = 2 * 2 ** 20;
const advice = 'int madvise(uintptr_t at, size_t bytes, int advice)';

/** The address of memory whose pages all exist; undefined if memory is short, 0 if the C library was not found. */
function mapPages(bytes: number): number | undefined {
  const map = libcFunction('void *mmap(uintptr_t at, size_t bytes, int access, int flags, int file, int64_t offset)');
  const advise = libcFunction(advice);
  const set = libcFunction('void *memset(uintptr_t at, int value, size_t bytes)');
  if (map === undefined || advise === undefined || set === undefined) return 0;
  const found = BigInt.asIntN(
    64,
    BigInt((map(0, bytes, readAndWrite, privateAnonymous, -1, 0) as bigint | null) ?? -1),
  );
  if (found <= 0n) return undefined;
  const address = Number(found);
  advise(address, bytes, notInForks);
  // Linux before 5.14 does not know the advice.
  populate(address, bytes, (at, step) => set(at, 0, step));
  return address;
}

/** @param otherwise makes pages where the system has no call for that; without it, the driver makes them */
function populate(address: number, bytes: number, otherwise?: (at: number, step: number) => void): void {
  const advise = libcFunction(advice);
  for (let at = address; at < address + bytes; at += populateBytes) {
    const step = Math.min(populateBytes, address + bytes - at);
    if (advise?.(at, step, populateWrite) !== 0) otherwise?.(at, step);
  }
}

function unmapPages(address: number, bytes: number): void {
  libcFunction('int munmap(uintptr_t at, size_t bytes)')?.(address, bytes);
}
