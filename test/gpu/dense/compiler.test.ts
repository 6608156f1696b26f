import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { NativeCompiler } from '../../../src/gpu/driver/compiler.ts';
import { loadLibrary, type LoadedLibrary } from '../../../src/gpu/driver/libraries.ts';
import { NativeArena } from '../../../src/gpu/driver/native-memory.ts';
import type { CudaDevice } from '../../../src/gpu/driver/types.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel } from '../../../src/gpu/program/index.ts';
import { writeModel } from '../../../src/onnx/index.ts';
import { withOwnProducts } from '../../support/run-program.ts';
import { convolutionCases, denseModel, productCases, recurrenceCases } from './cases.ts';

/** NVRTC, which needs no GPU: from `pip install nvidia-cuda-nvrtc`, a CUDA toolkit, or TURNTABLE_LIBNVRTC. */
function installedCompiler(): LoadedLibrary | undefined {
  try {
    return loadLibrary('libnvrtc');
  } catch {
    return undefined;
  }
}

const library = installedCompiler();
if (library === undefined) console.log('NVRTC is not installed: whether kernels compile with it is not tested.');

const architectures = [
  { major: 7, minor: 5 },
  { major: 9, minor: 0 },
];

test.skipIf(library === undefined)('the kernels compile with NVRTC for Turing and for Hopper', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-nvrtc-'));
  try {
    const compiler = new NativeCompiler(library!, new NativeArena(), join(folder, 'kernels'));
    const path = join(folder, 'dense.onnx');
    await writeModel(denseModel([...productCases, ...convolutionCases, ...recurrenceCases]).model, path);
    const settings = { precision: 'fp16' } as const;
    const program = await compileModel(path, [], operators, { cacheFolder: folder, settings });
    for (const { source } of [program, withOwnProducts(program)]) {
      for (const computeCapability of architectures) {
        const device = { name: 'a GPU', computeCapability } as CudaDevice;
        const image = await compiler.compile(source, device);
        expect(new TextDecoder().decode(image.subarray(1, 4))).toBe('ELF');
      }
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
