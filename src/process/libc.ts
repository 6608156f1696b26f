/** Functions of the C library, through koffi. */
import { createRequire } from 'node:module';
import type * as Koffi from 'koffi';

/**
 * Stack sizes for native code. NVRTC overflows the usual 128 KiB of asynchronous calls; the first library that a
 * process loads fixes the size for all.
 */
export const nativeStackBytes = { sync_stack_size: 16 << 20, async_stack_size: 8 << 20 };

type LibcFunction = (...values: unknown[]) => unknown;

const functions = new Map<string, LibcFunction | undefined>();

/** A function by its C prototype; undefined outside Linux, and if koffi or the C library lacks it. */
export function libcFunction(prototype: string): LibcFunction | undefined {
  if (!functions.has(prototype)) functions.set(prototype, lookUp(prototype));
  return functions.get(prototype);
}

/** The address of a buffer's bytes, for a structure that points to them; valid as long as the buffer is referenced. */
export function addressOf(buffer: Buffer): bigint {
  const koffi = createRequire(import.meta.url)('koffi') as typeof Koffi;
  return koffi.address(buffer);
}

function lookUp(prototype: string): LibcFunction | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof Koffi;
    try {
      koffi.config(nativeStackBytes);
    } catch {
      // Another library was loaded before; code that needs the size checks it.
    }
    return koffi.load(null).func(prototype) as LibcFunction;
  } catch {
    return undefined;
  }
}
