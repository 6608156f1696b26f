/**
 * Builds the emulated driver: stand-ins for libcuda, libnvrtc and libcublasLt that run on the CPU. They are kept in an
 * ignored folder under the hash of their sources, so that only a change of theirs costs a build (ten seconds on two
 * cores).
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readFile, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const sources = import.meta.dirname;
const cache = join(sources, '..', '..', '.cache', 'emulated-driver');

/**
 * Of kernels, and therefore of the precompiled header as well: g++ takes the header only where all of them agree. Tests
 * run a kernel a few times on a few numbers: optimizing it takes longer than all its runs.
 */
const kernelFlags = [
  '-std=c++17',
  '-O0',
  '-fPIC',
  '-w',
  '-fvisibility=hidden',
  '-fno-exceptions',
  '-fno-threadsafe-statics',
  // Kernels look at the same bytes as different types, which nvcc allows.
  '-fno-strict-aliasing',
  '-fno-math-errno',
];
/** A run of all tests on a clean checkout waits for this build, and gains nothing from more than -O1. */
const libraryFlags = ['-std=c++17', '-O1', '-fPIC', '-Wall', '-Wextra', '-fvisibility=hidden', '-pthread'];

export interface EmulatedDriver {
  /** Absolute paths of the three stand-ins; each loads without anything else being set. */
  readonly libcuda: string;
  readonly libnvrtc: string;
  readonly libcublasLt: string;
  /** Sets TURNTABLE_LIBCUDA and so on, for child processes. */
  readonly environment: Readonly<Record<string, string>>;
}

let building: Promise<EmulatedDriver | undefined> | undefined;

/**
 * The paths of the stand-ins, which are built where they are not there yet.
 * @returns undefined, with a line on the console, where there is no g++
 * @throws Error with the compiler's output when a source does not compile
 */
export function buildEmulatedDriver(): Promise<EmulatedDriver | undefined> {
  building ??= build();
  return building;
}

async function build(): Promise<EmulatedDriver | undefined> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    console.log('The emulated driver is for Linux on x86-64: tests that need it are skipped.');
    return undefined;
  }
  const compiler = await execute('g++', ['--version']).catch(() => undefined);
  if (compiler === undefined) {
    console.log('g++ is not installed: tests that need the emulated driver are skipped.');
    return undefined;
  }
  const files = await sourceFiles();
  const hash = createHash('sha256')
    .update(compiler.stdout)
    .update(kernelFlags.join(' '))
    .update(libraryFlags.join(' '));
  for (const file of files) hash.update(`${file}\0`).update(await readFile(join(sources, file)));
  const folder = join(cache, hash.digest('hex').slice(0, 24));
  if (!existsSync(folder)) await buildOnce(folder, files);
  // What was not used for long is removed at the next build.
  await utimes(folder, new Date(), new Date());
  const libcuda = join(folder, 'libcuda-emulated.so');
  const libnvrtc = join(folder, 'libnvrtc-emulated.so');
  const libcublasLt = join(folder, 'libcublasLt-emulated.so');
  const environment = {
    TURNTABLE_LIBCUDA: libcuda,
    TURNTABLE_LIBNVRTC: libnvrtc,
    TURNTABLE_LIBCUBLASLT: libcublasLt,
  };
  return { libcuda, libnvrtc, libcublasLt, environment };
}

async function sourceFiles(): Promise<string[]> {
  const files = await readdir(sources, { recursive: true });
  return files.filter((file) => /\.(cpp|h)$/.test(file)).sort();
}

/**
 * Test workers that come while another one builds wait for it, since a build takes all cores. A builder that died
 * leaves its lock behind: after two minutes everyone builds, each in a folder of its own, and the first whose rename
 * succeeds has built it for all.
 */
async function buildOnce(folder: string, files: readonly string[]): Promise<void> {
  await mkdir(cache, { recursive: true });
  const lock = `${folder}.lock`;
  const waitMsMax = 120_000;
  const isOurs = await mkdir(lock).then(
    () => true,
    () => false,
  );
  if (!isOurs) {
    const lockedAtMs = (await stat(lock).catch(() => undefined))?.mtimeMs ?? Date.now();
    while (!existsSync(folder) && existsSync(lock) && Date.now() - lockedAtMs < waitMsMax) await setTimeout(200);
    if (existsSync(folder)) return;
  }
  try {
    if (!existsSync(folder)) await buildInto(folder, files);
    await removeUnused();
  } finally {
    await rm(lock, { recursive: true, force: true });
  }
}

async function buildInto(folder: string, files: readonly string[]): Promise<void> {
  const own = await mkdtemp(join(cache, 'building-'));
  try {
    // All files of a library are one unit: with one each, g++ reads and instantiates the C++ headers anew for each file.
    const unitOf = async (name: string): Promise<string> => {
      const parts = files.filter((file) => file.startsWith(`${name}/`) && file.endsWith('.cpp'));
      const path = join(own, `${name}.cpp`);
      await writeFile(path, parts.map((file) => `#include "${join(sources, file)}"\n`).join(''));
      return path;
    };
    for (const header of ['cuda_emu.h', 'half.h', 'runtime.h'])
      await copyFile(join(sources, 'kernel', header), join(own, header));
    const flagsText = kernelFlags.map((flag) => `"${flag}"`).join(',');
    await Promise.all([
      // A name of its own: where a real driver is loaded as well, cuBLASLt must not be bound to that one.
      compile([
        ...libraryFlags,
        '-shared',
        '-Wl,-soname,libcuda-emulated.so',
        await unitOf('driver'),
        '-ldl',
        '-o',
        join(own, 'libcuda-emulated.so'),
      ]),
      compile([
        ...libraryFlags,
        `-DEMU_KERNEL_FLAGS=${flagsText}`,
        '-shared',
        await unitOf('nvrtc'),
        '-ldl',
        '-o',
        join(own, 'libnvrtc-emulated.so'),
      ]),
      compile([...kernelFlags, '-x', 'c++-header', join(own, 'cuda_emu.h'), '-o', join(own, 'cuda_emu.h.gch')]),
    ]);
    await compile([
      ...libraryFlags,
      '-O3',
      '-shared',
      await unitOf('cublaslt'),
      join(own, 'libcuda-emulated.so'),
      '-Wl,-rpath,$ORIGIN',
      '-o',
      join(own, 'libcublasLt-emulated.so'),
    ]);
    await rename(own, folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  } finally {
    await rm(own, { recursive: true, force: true });
  }
}

/** Builds of sources that have changed since, and what killed builders left. */
async function removeUnused(): Promise<void> {
  const usedSinceMs = Date.now() - 7 * 24 * 3_600_000;
  for (const entry of await readdir(cache)) {
    const path = join(cache, entry);
    const status = await stat(path).catch(() => undefined);
    if (status !== undefined && status.mtimeMs < usedSinceMs) await rm(path, { recursive: true, force: true });
  }
}

async function compile(commandLine: readonly string[]): Promise<void> {
  try {
    await execute('g++', [...commandLine], { maxBuffer: 1 << 26 });
  } catch (error) {
    const output = error instanceof Error && 'stderr' in error ? String(error.stderr) : String(error);
    throw new Error(`The emulated driver does not compile: ${output}`, { cause: error });
  }
}
