/** Functions of the C library, through koffi. */
import { createRequire } from 'node:module';
import type * as Koffi from 'koffi';

/**
 * Stacks that native code runs on. With the 128 KiB that are usual for asynchronous calls, NVRTC overflows; and the
 * first library that a process loads settles it for all others.
 */
export const nativeStackBytes = { sync_stack_size: 16 << 20, async_stack_size: 8 << 20 };

type LibcFunction = (...values: unknown[]) => unknown;

const functions = new Map<string, LibcFunction | undefined>();

/** A function by its C prototype; undefined outside Linux, and where koffi or the C library does not have it. */
export function libcFunction(prototype: string): LibcFunction | undefined {
  if (!functions.has(prototype)) functions.set(prototype, lookUp(prototype));
  return functions.get(prototype);
}

/**
 * Where a buffer's bytes are, for a structure that points to them; they stay there as long as somebody holds the
 * buffer.
 */
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
      // Another library was loaded before; whoever needs the size looks at it.
    }
    return koffi.load(null).func(prototype) as LibcFunction;
  } catch {
    return undefined;
  }
}
