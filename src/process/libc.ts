/** Functions of the C library, through koffi. */
import { createRequire } from 'node:module';
import type * as Koffi from 'koffi';

/**
 * Stack sizes for native code. NVRTC overflows the usual 128 KiB of asynchronous calls; the first library that a
 * process loads fixes the size for all.
 */
export const nativeStackBytes = { sync_stack_size: 16 << 20, async_stack_size: 8 << 20 };

type LibcFunction = (...values: unknown[]) => unknown;

let koffi: typeof Koffi | undefined;

/**
 * koffi's library, without its package's JavaScript where that is not needed: to look for the library and to wrap what
 * is deprecated takes a process 10 ms of its start, a fifth of what an instance adds to that of Node.
 */
export function loadKoffi(): typeof Koffi {
  return (koffi ??= requireKoffi());
}

function requireKoffi(): typeof Koffi {
  const require = createRequire(import.meta.url);
  const { platform, arch } = process;
  try {
    return require(`@koromix/koffi-${platform}-${arch}/${platform}_${arch}/koffi.node`) as typeof Koffi;
  } catch {
    // The package also finds libraries that were compiled here, and those for another C library.
    return require('koffi') as typeof Koffi;
  }
}

const functions = new Map<string, LibcFunction | undefined>();

/** A function by its C prototype; undefined outside Linux, and if koffi or the C library lacks it. */
export function libcFunction(prototype: string): LibcFunction | undefined {
  if (!functions.has(prototype)) functions.set(prototype, lookUp(prototype));
  return functions.get(prototype);
}

/** Asks the kernel for something about this process; 0: done, undefined: there is no such function. */
export const prctl = (option: number, value: number): unknown =>
  libcFunction('int prctl(int option, ulong first, ulong second, ulong third, ulong fourth)')?.(option, value, 0, 0, 0);

/** The address of a buffer's bytes, for a structure that points to them; valid as long as the buffer is referenced. */
export function addressOf(buffer: Buffer): bigint {
  return loadKoffi().address(buffer);
}

function lookUp(prototype: string): LibcFunction | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const library = loadKoffi();
    try {
      library.config(nativeStackBytes);
    } catch {
      // Another library was loaded before; code that needs the size checks it.
    }
    return library.load(null).func(prototype) as LibcFunction;
  } catch {
    return undefined;
  }
}
