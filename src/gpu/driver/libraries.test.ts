import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bind, candidates, loadLibrary } from './libraries.ts';
import { openCuda } from './open.ts';
import { CudaError } from './types.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-libraries-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function place(...parts: string[]): Promise<string> {
  const file = join(folder, ...parts);
  await mkdir(join(file, '..'), { recursive: true });
  await writeFile(file, 'not a library');
  return file;
}

function failure(act: () => unknown): CudaError {
  try {
    act();
  } catch (error) {
    if (error instanceof CudaError) return error;
    throw error;
  }
  throw new Error('expected a CudaError, but nothing was thrown');
}

test("a library is looked for in Python's packages, by the linker, and in a CUDA installation, in this order", async () => {
  const packages = ['venv', 'lib', 'python3.11', 'site-packages'];
  const wheel13 = await place(...packages, 'nvidia', 'cu13', 'lib', 'libnvrtc.so.13');
  const wheel12 = await place(...packages, 'nvidia', 'cuda_nvrtc', 'lib', 'libnvrtc.so.12');
  const toolkit = await place('cuda', 'lib64', 'libnvrtc.so.13');
  const environment = { VIRTUAL_ENV: join(folder, 'venv'), CUDA_HOME: join(folder, 'cuda') };
  const own = (cudaMajor?: number): string[] =>
    candidates('libnvrtc', { environment, cudaMajor })
      .map(({ file }) => file)
      .filter((file) => file.startsWith(folder) || !file.includes('/'));
  expect(own()).toEqual([wheel13, wheel12, 'libnvrtc.so.13', 'libnvrtc.so.12', toolkit]);
  // A driver of CUDA 12 cannot load the output of a CUDA 13 compiler.
  expect(own(12)).toEqual([wheel12, 'libnvrtc.so.12']);
});

test('libraries are found in the package folders that the python3 on the PATH reports', async () => {
  const wheel = await place('elsewhere', 'packages', 'nvidia', 'cu13', 'lib', 'libcublasLt.so.13');
  const chosen = await place('chosen', 'lib', 'python3.12', 'site-packages', 'nvidia/cu13/lib/libcublasLt.so.13');
  const python = await place('bin', 'python3');
  await writeFile(python, `#!/bin/sh\necho ${join(folder, 'elsewhere', 'packages')}\necho not/absolute\n`);
  await chmod(python, 0o755);
  const own = (environment: NodeJS.ProcessEnv): string[] =>
    candidates('libcublasLt', { environment })
      .map(({ file }) => file)
      .filter((file) => file.startsWith(folder));
  const PATH = join(folder, 'bin');
  expect(own({ PATH })).toEqual([wheel]);
  expect(own({ PATH, CONDA_PREFIX: join(folder, 'chosen') })).toEqual([chosen, wheel]);
  expect(own({ PATH: join(folder, 'chosen') })).toEqual([]);
});

test('with TURNTABLE_LIBCUBLASLT set no other file is tried', () => {
  const environment = { TURNTABLE_LIBCUBLASLT: '/somewhere/libcublasLt.so' };
  expect(candidates('libcublasLt', { environment })).toEqual([
    { file: '/somewhere/libcublasLt.so', origin: 'TURNTABLE_LIBCUBLASLT' },
  ]);
  const error = failure(() => loadLibrary('libcublasLt', { environment }));
  expect(error).toMatchObject({ code: 'unavailable', statusName: 'LIBRARY_NOT_FOUND' });
  expect(error.message).toContain('cuBLASLt was not found: tried /somewhere/libcublasLt.so from TURNTABLE_LIBCUBLASLT');
});

test('the error for a missing or damaged library names the files that were tried', async () => {
  const damaged = await place('damaged', 'libcuda.so.1');
  const error = failure(() => openCuda({ environment: { TURNTABLE_LIBCUDA: damaged } }));
  expect(error.code).toBe('unavailable');
  expect(error.message).toContain(damaged);
  expect(error.message).toMatch(/invalid ELF header|file too short/);
  const absent = failure(() => loadLibrary('libnvrtc', { environment: { HOME: folder }, cudaMajor: 1 }));
  expect(absent.message).toContain('libnvrtc.so.12 from the dynamic linker');
  expect(absent.message).toContain('TURNTABLE_LIBNVRTC can name the file');
});

test('a library that lacks functions is refused with their names', () => {
  const library = loadLibrary('libcuda', { path: 'libc.so.6' });
  const error = failure(() => bind(library, { strlen: ['uint64_t'], cuInit: ['uint32_t'], cuNothing: [] }));
  expect(error.message).toContain('it lacks cuInit, cuNothing');
});
