/**
 * Builds the emulated driver: replacements for libcuda, libnvrtc and libcublasLt that run on the CPU. They are kept in
 * an ignored folder under the hash of their sources, so only a change costs a build (ten seconds on two cores).
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
 * For kernels, and so for the precompiled header too: g++ takes the header only if all flags agree. Tests run a kernel
 * a few times on a few numbers: optimizing it takes longer than all its runs.
 */
const kernelFlags = [
  '-std=c++17',
  '-O0',
  '-fPIC',
  '-w',
  '-fvisibility=hidden',
  '-fno-exceptions',
  '-fno-threadsafe-statics',
  // Kernels read the same bytes as different types, which nvcc allows.
  '-fno-strict-aliasing',
  '-fno-math-errno',
  '-nostdinc++',
];
/** On a clean checkout all tests wait for this build, and gain nothing from more than -Og. */
const libraryFlags = ['-std=c++17', '-Og', '-fPIC', '-Wall', '-Wextra', '-fvisibility=hidden', '-pthread'];

export interface EmulatedDriver {
  /** Absolute paths of the three libraries; each loads without further settings. */
  readonly libcuda: string;
  readonly libnvrtc: string;
  readonly libcublasLt: string;
  /** Sets TURNTABLE_LIBCUDA and so on, for child processes. */
  readonly environment: Readonly<Record<string, string>>;
}

let building: Promise<EmulatedDriver | undefined> | undefined;

/**
 * The paths of the libraries, which are built if missing.
 * @returns undefined, with a line on the console, without g++
 * @throws Error with the compiler's output if a source does not compile
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
  // The next build removes libraries that were not used for long.
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
 * Test workers that come during a build wait for it, since a build takes all cores. A builder that died leaves its lock
 * behind: after two minutes every worker builds in its own folder, and the first successful rename counts for all.
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
    // All files of a library are one unit: otherwise g++ would read and instantiate the C++ headers for each file.
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
      // A different name: if a real driver is loaded too, cuBLASLt must not be bound to that one.
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

/** Builds of changed sources, and leftovers of killed builders. */
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
