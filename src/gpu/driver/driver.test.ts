import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { emulatorMissing, withEmulatedCuda } from '../../../test/support/emulated-cuda.ts';
import type { Emulator } from '../../../test/support/emulator.ts';
import { openCuda } from './open.ts';
import { CudaError, type Cuda, type CudaDevice, type CudaModule, type MatmulDescription } from './types.ts';

const scale = `KERNEL void scale(const float* in, float* out, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * factor;
}`;

async function loadKernels(cuda: Cuda, source: string, device: CudaDevice = cuda.devices[0]!): Promise<CudaModule> {
  return device.loadModule(await cuda.compiler.compile(source, device));
}

function caught(act: () => unknown): CudaError {
  try {
    act();
  } catch (error) {
    if (error instanceof CudaError) return error;
    throw error;
  }
  throw new Error('expected a CudaError, but nothing was thrown');
}

const floatsOf = (bytes: Uint8Array): number[] => [
  ...new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4),
];

test.skipIf(emulatorMissing)('a device has the properties that the driver reports', async () => {
  const device = { name: 'H200', memoryBytes: 2 ** 26, computeCapability: [9, 0], multiprocessors: 132 } as const;
  await withEmulatedCuda({ devices: [device, { ...device, name: 'other' }] }, (cuda) => {
    expect(cuda.driverVersion).toBeGreaterThanOrEqual(12_000);
    expect(cuda.isEmulated).toBe(true);
    expect(cuda.devices.map(({ name }) => name)).toEqual(['H200', 'other']);
    const [first, second] = cuda.devices;
    expect(first).toMatchObject({
      index: 0,
      totalBytes: 2 ** 26,
      multiprocessors: 132,
      computeCapability: { major: 9, minor: 0 },
    });
    expect(first!.uuid).toMatch(/^GPU-[\da-f]{8}-([\da-f]{4}-){3}[\da-f]{12}$/);
    expect(first!.uuid).not.toBe(second!.uuid);
    expect(first!.pciBusId).toMatch(/^[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d$/i);
  });
});

test.skipIf(emulatorMissing)('a kernel reads pinned memory, and its result is copied back', async () => {
  await withEmulatedCuda({}, async (cuda) => {
    const device = cuda.devices[0]!;
    using module = await loadKernels(cuda, scale);
    using host = cuda.allocateHost(4096);
    using memory = device.allocate(4096);
    using stream = device.createStream();
    const view = new Float32Array(host.view(0, 400).buffer, host.view(0, 400).byteOffset, 100);
    view.forEach((_, index) => (view[index] = index));
    using launch = module
      .kernel('scale')
      .prepare({ grid: [4, 1, 1], block: [32, 1, 1] }, ['pointer', 'pointer', 'f32', 'i32']);
    for (const [index, value] of [host.address, memory.address, 1.5, 100].entries()) launch.set(index, value);
    stream.launch(launch);
    stream.copy(host.address + 2048, memory.address, 400);
    await stream.finished();
    expect(floatsOf(host.view(2048, 400))).toEqual(Array.from({ length: 100 }, (_, index) => index * 1.5));
  });
});

test.skipIf(emulatorMissing)('waits for streams of two devices all resolve', async () => {
  await withEmulatedCuda({ devices: 2 }, async (cuda) => {
    const streams = cuda.devices.flatMap((device) =>
      [device.createStream(), device.createStream({ priority: 'high' })].map((stream) => ({ device, stream })),
    );
    using host = cuda.allocateHost(65_536);
    const memories = cuda.devices.map((device) => device.allocate(65_536));
    host.view(0, 65_536).fill(7);
    const order: number[] = [];
    await Promise.all(
      streams.map(async ({ device, stream }, index) => {
        stream.copy(memories[device.index]!.address + (index % 2) * 32_768, host.address, 32_768);
        await stream.finished();
        await stream.finished();
        order.push(index);
      }),
    );
    expect(order.toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3]);
    for (const each of [...streams.map(({ stream }) => stream), ...memories]) each.release();
  });
});

test.skipIf(emulatorMissing)(
  'memory is counted and freed once, and too large an allocation is out of memory',
  async () => {
    await withEmulatedCuda({ devices: [{ memoryBytes: 2 ** 20 }] }, (cuda) => {
      const device = cuda.devices[0]!;
      const memory = device.allocate(2 ** 19);
      expect(memory.address % 256).toBe(0);
      expect(cuda.counts()).toMatchObject({ deviceBytes: 2 ** 19, allocations: 1 });
      const error = caught(() => device.allocate(2 ** 20));
      expect(error).toMatchObject({ code: 'out-of-memory', call: 'cuMemAlloc_v2', status: 2 });
      expect(error.statusName).toBe('CUDA_ERROR_OUT_OF_MEMORY');
      expect(error.message).toContain('1048576 bytes of device memory on GPU 0');
      expect(device.memory().freeBytes).toBeLessThanOrEqual(2 ** 19);
      memory.release();
      memory.release();
      expect(cuda.counts()).toMatchObject({ deviceBytes: 0, allocations: 0 });
      expect(caught(() => device.allocate(0)).code).toBe('misuse');
    });
  },
);

test.skipIf(emulatorMissing)('a view outside of host memory is refused', async () => {
  await withEmulatedCuda({}, (cuda) => {
    const host = cuda.allocateHost(1000);
    host.view(10, 20).fill(3);
    expect([...host.view(0, 1000)].filter((value) => value === 3)).toHaveLength(20);
    expect(host.view(1000, 0)).toHaveLength(0);
    expect(caught(() => host.view(990, 11)).message).toContain('990 to 1001');
    host.release();
    expect(caught(() => host.view(0, 1)).message).toContain('released');
  });
});

test.skipIf(emulatorMissing)(
  'an event orders two streams, and two timing events give the time between them',
  async () => {
    await withEmulatedCuda({ hostility: 'late' }, (cuda) => {
      const device = cuda.devices[0]!;
      using load = device.createStream();
      using execute = device.createStream();
      using memory = device.allocate(4096);
      using host = cuda.allocateHost(8192);
      using loaded = device.createEvent({ timing: true });
      using ended = device.createEvent({ timing: true });
      using plain = device.createEvent();
      host.view(0, 4096).fill(9);
      load.copy(memory.address, host.address, 4096);
      load.record(loaded);
      execute.wait(loaded);
      execute.copy(host.address + 4096, memory.address, 4096);
      execute.record(ended);
      execute.synchronize();
      expect(host.view(4096, 4096).every((value) => value === 9)).toBe(true);
      expect(ended.msSince(loaded)).toBeGreaterThanOrEqual(0);
      expect(caught(() => ended.msSince(plain)).message).toContain('without timing');
    });
  },
);

test.skipIf(emulatorMissing)('copies reach memory of another device with and without peer access', async () => {
  await withEmulatedCuda(
    {
      devices: 3,
      peers: [
        [0, 1],
        [1, 0],
      ],
    },
    async (cuda) => {
      const [first, second, third] = cuda.devices as [CudaDevice, CudaDevice, CudaDevice];
      expect([first.canAccessPeer(second), first.canAccessPeer(third), first.canAccessPeer(first)]).toEqual([
        true,
        false,
        true,
      ]);
      first.enablePeerAccess(second);
      first.enablePeerAccess(second);
      expect(caught(() => first.enablePeerAccess(third)).code).toBe('unsupported');
      using a = first.allocate(1024);
      using b = second.allocate(1024);
      using c = third.allocate(1024);
      using host = cuda.allocateHost(1024);
      using stream = first.createStream();
      stream.fill(a.address, 5, 1024);
      stream.copy(b.address, a.address, 1024);
      stream.copy(c.address, b.address, 1024);
      stream.copy(host.address, c.address, 1024);
      await stream.finished();
      expect(host.view(0, 1024).every((value) => value === 5)).toBe(true);
    },
  );
});

test.skipIf(emulatorMissing)('a captured graph repeats the submitted work', async () => {
  await withEmulatedCuda({}, async (cuda) => {
    const device = cuda.devices[0]!;
    using module = await loadKernels(cuda, scale);
    using memory = device.allocate(1024);
    using host = cuda.allocateHost(1024);
    using stream = device.createStream();
    using launch = module
      .kernel('scale')
      .prepare({ grid: [1, 1, 1], block: [32, 1, 1] }, ['pointer', 'pointer', 'f32', 'i32']);
    for (const [index, value] of [memory.address, memory.address, 2, 16].entries()) launch.set(index, value);
    new Float32Array(host.view(0, 64).buffer, host.view(0, 64).byteOffset, 16).fill(1);
    stream.copy(memory.address, host.address, 64);
    using graph = stream.capture(() => stream.launch(launch));
    for (let times = 0; times < 3; times++) stream.launchGraph(graph);
    stream.copy(host.address, memory.address, 64);
    await stream.finished();
    expect(floatsOf(host.view(0, 64))).toEqual(Array.from({ length: 16 }, () => 8));
    // Another address updates the graph in place; another launch needs a new graph.
    launch.set(1, memory.address + 64);
    expect(stream.capture(() => stream.launch(launch), graph)).toBe(graph);
    stream.launchGraph(graph);
    const twice = (): void => [1, 2].forEach(() => stream.launch(launch));
    using longer = stream.capture(twice, graph);
    expect(longer).not.toBe(graph);
    stream.copy(host.address, memory.address + 64, 64);
    await stream.finished();
    expect(floatsOf(host.view(0, 64))).toEqual(Array.from({ length: 16 }, () => 16));
    expect(() =>
      stream.capture(() => {
        throw new Error('the reason');
      }),
    ).toThrow('the reason');
    await stream.finished();
  });
});

test.skipIf(emulatorMissing)("an error has its kind, and the driver's name for the status", async () => {
  await withEmulatedCuda({}, async (cuda, emulator: Emulator) => {
    const device = cuda.devices[0]!;
    const kinds = [
      [700, 'poisoned', 'CUDA_ERROR_ILLEGAL_ADDRESS'],
      [719, 'poisoned', 'CUDA_ERROR_LAUNCH_FAILED'],
      [2, 'out-of-memory', 'CUDA_ERROR_OUT_OF_MEMORY'],
      [999, 'device-lost', 'CUDA_ERROR_UNKNOWN'],
      [801, 'unsupported', 'CUDA_ERROR_NOT_SUPPORTED'],
      [1, 'misuse', 'CUDA_ERROR_INVALID_VALUE'],
    ] as const;
    for (const [status, kind, statusName] of kinds) {
      emulator.failNext('cuMemAlloc_v2', status);
      expect(caught(() => device.allocate(256))).toMatchObject({
        code: kind,
        status,
        statusName,
        call: 'cuMemAlloc_v2',
      });
    }
    await expect(cuda.compiler.compile('KERNEL void broken() { nonsense; }', device)).rejects.toMatchObject({
      code: 'compilation',
      message: expect.stringContaining('nonsense') as string,
    });
    using module = await loadKernels(cuda, scale);
    expect(caught(() => module.kernel('absent'))).toMatchObject({ status: 500 });
    expect(caught(() => module.kernel('absent')).message).toContain("kernel 'absent'");
  });
});

test.skipIf(emulatorMissing)('using a released launch, event or stream is a misuse', async () => {
  await withEmulatedCuda({}, async (cuda) => {
    const device = cuda.devices[0]!;
    const stream = device.createStream();
    const event = device.createEvent();
    using module = await loadKernels(cuda, scale);
    const launch = module.kernel('scale').prepare({ grid: [1, 1, 1], block: [1, 1, 1] }, ['pointer']);
    launch.release();
    expect(caught(() => stream.launch(launch)).code).toBe('misuse');
    event.release();
    event.release();
    expect(caught(() => stream.record(event)).code).toBe('misuse');
    stream.release();
    stream.release();
    expect(caught(() => stream.synchronize()).code).toBe('misuse');
    const late = cuda.devices[0]!.createStream();
    const waiting = late.finished();
    await waiting;
    late.release();
  });
});

const square: MatmulDescription = {
  m: 3,
  n: 2,
  k: 4,
  batch: 1,
  transposeA: false,
  transposeB: false,
  lda: 4,
  ldb: 2,
  ldd: 2,
  strideA: 0,
  strideB: 0,
  strideD: 0,
  typeA: 'f32',
  typeB: 'f32',
  typeD: 'f32',
  tf32: false,
  alpha: 1,
  beta: 0,
  epilogue: 'none',
  workspaceBytesMax: 2 ** 20,
};

/** The product in plain loops. */
function expectedProduct(
  d: MatmulDescription,
  a: Float32Array,
  b: Float32Array,
  c: Float32Array,
  bias: Float32Array,
): number[] {
  const results: number[] = [];
  for (let item = 0; item < d.batch; item++) {
    for (let row = 0; row < d.m; row++) {
      for (let column = 0; column < d.n; column++) {
        let sum = 0;
        for (let inner = 0; inner < d.k; inner++) {
          const left = d.transposeA ? inner * d.lda + row : row * d.lda + inner;
          const right = d.transposeB ? column * d.ldb + inner : inner * d.ldb + column;
          sum += a[item * d.strideA + left]! * b[item * d.strideB + right]!;
        }
        let value = d.alpha * sum + d.beta * c[item * d.strideD + row * d.ldd + column]!;
        if (d.epilogue.endsWith('bias')) value += bias[item * (d.strideBias ?? 0) + column]!;
        if (d.epilogue.startsWith('relu')) value = Math.max(0, value);
        if (d.epilogue.startsWith('gelu')) {
          value = 0.5 * value * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (value + 0.044715 * value ** 3)));
        }
        results.push(value);
      }
    }
  }
  return results;
}

const products: Readonly<Record<string, Partial<MatmulDescription>>> = {
  plain: {},
  'A transposed': { transposeA: true, lda: 3 },
  'B transposed': { transposeB: true, ldb: 4 },
  'both transposed': { transposeA: true, lda: 3, transposeB: true, ldb: 4 },
  'rows further apart than they are long': { lda: 6, ldb: 5, ldd: 4 },
  'a batch': { batch: 3, strideA: 12, strideB: 8, strideD: 6 },
  'a batch with one B': { batch: 3, strideA: 12, strideB: 0, strideD: 6 },
  'heads beside each other': { batch: 2, lda: 8, strideA: 4, ldb: 4, strideB: 2, ldd: 4, strideD: 2 },
  'a factor, and the result added to D': { alpha: -0.5, beta: 1 },
  'a bias': { epilogue: 'bias' },
  'a bias for all items': { batch: 3, strideA: 12, strideB: 8, strideD: 6, epilogue: 'bias' },
  'a bias for each item': { batch: 3, strideB: 8, strideD: 6, strideBias: 4, epilogue: 'bias' },
  'a bias and relu': { epilogue: 'relu-bias' },
  'a bias and gelu': { epilogue: 'gelu-tanh-bias' },
  'relu alone': { epilogue: 'relu' },
};

test.skipIf(emulatorMissing)('products equal plain loops over row-major matrices', async () => {
  await withEmulatedCuda({}, (cuda) => {
    const device = cuda.devices[0]!;
    using stream = device.createStream();
    using host = cuda.allocateHost(16_384);
    using memory = device.allocate(16_384 + 2 ** 20);
    const floats = (offset: number): Float32Array => {
      const view = host.view(offset, 1024);
      return new Float32Array(view.buffer, view.byteOffset, 256);
    };
    const [a, b, c, bias] = [floats(0), floats(4096), floats(8192), floats(12_288)];
    for (const [index, values] of [a, b, c, bias].entries()) {
      values.forEach((_, place) => (values[place] = Math.sin(place * 1.3 + index)));
    }
    const initial = c.slice();
    for (const [name, changes] of Object.entries(products)) {
      const description = { ...square, ...changes };
      c.set(initial);
      stream.copy(memory.address, host.address, 16_384);
      using matmul = device.createMatmul(description);
      expect(matmul.workspaceBytes).toBeLessThanOrEqual(description.workspaceBytesMax);
      stream.matmul(matmul, {
        a: memory.address,
        b: memory.address + 4096,
        d: memory.address + 8192,
        bias: description.epilogue.endsWith('bias') ? memory.address + 12_288 : 0,
        workspace: memory.address + 16_384,
      });
      stream.copy(host.address + 8192, memory.address + 8192, 1024);
      stream.synchronize();
      const expected = expectedProduct(description, a, b, initial, bias);
      const found: number[] = [];
      for (let item = 0; item < description.batch; item++) {
        for (let row = 0; row < description.m; row++) {
          const start = item * description.strideD + row * description.ldd;
          found.push(...c.subarray(start, start + description.n));
        }
      }
      for (const [index, value] of found.entries()) expect(value, name).toBeCloseTo(expected[index]!, 4);
    }
    expect(caught(() => device.createMatmul({ ...square, lda: 3 })).message).toContain('shorter than a row');
    expect(caught(() => device.createMatmul({ ...square, typeB: 'f16' })).message).toContain('same type');
  });
});

test.skipIf(emulatorMissing)('a product takes operands that are aligned to 4 bytes only', async () => {
  await withEmulatedCuda({}, (cuda) => {
    const device = cuda.devices[0]!;
    using stream = device.createStream();
    using host = cuda.allocateHost(4096);
    using memory = device.allocate(4096);
    new Float32Array(host.view(0, 4096).buffer, host.view(0, 4096).byteOffset, 1024).fill(1);
    stream.copy(memory.address, host.address, 4096);
    using matmul = device.createMatmul({ ...square, workspaceBytesMax: 0 });
    const [a, b, d] = [memory.address + 4, memory.address + 1028, memory.address + 2060];
    stream.matmul(matmul, { a, b, d, bias: 0, workspace: 0 });
    stream.copy(host.address, d, 24);
    stream.synchronize();
    expect(floatsOf(host.view(0, 24))).toEqual([4, 4, 4, 4, 4, 4]);
  });
});

test.skipIf(emulatorMissing)(
  'kernels are compiled once, kept on disk, and compiled again when the entry is damaged',
  async () => {
    const cacheFolder = await mkdtemp(join(tmpdir(), 'turntable-kernel-cache-'));
    try {
      await withEmulatedCuda({}, async (cuda, { libraries }) => {
        const compileAnew = async (): Promise<Uint8Array> => {
          using opened = openCuda({ environment: libraries.environment, cacheFolder });
          return await opened.compiler.compile(scale, opened.devices[0]!);
        };
        const image = await compileAnew();
        const [entry, ...others] = await readdir(cacheFolder);
        expect(others).toEqual([]);
        const file = join(cacheFolder, entry!);
        const kept = await readFile(file);
        expect(Buffer.from(image).equals(kept.subarray(kept.length - image.length))).toBe(true);
        for (const damaged of [
          Buffer.alloc(0),
          kept.subarray(0, kept.length - 1),
          Buffer.from(kept).fill(0, 60, 61),
          Buffer.from('x'),
        ]) {
          await writeFile(file, damaged);
          const again = await compileAnew();
          using module = cuda.devices[0]!.loadModule(again);
          expect(module.kernel('scale').name).toBe('scale');
          expect((await readFile(file)).length).toBe(kept.length);
        }
        expect(await readdir(cacheFolder)).toHaveLength(1);
      });
    } finally {
      await rm(cacheFolder, { recursive: true, force: true });
    }
  },
);

test.skipIf(emulatorMissing)(
  "after a device is lost, calls fail with 'device-lost' and its objects can be released",
  async () => {
    await withEmulatedCuda({ allow: ['leaks'] }, async (cuda, emulator) => {
      const device = cuda.devices[0]!;
      const memory = device.allocate(4096);
      const stream = device.createStream();
      const event = device.createEvent();
      const matmul = device.createMatmul(square);
      emulator.loseDevice(0, 999);
      expect(caught(() => device.allocate(256))).toMatchObject({ code: 'device-lost', status: 999 });
      expect(caught(() => stream.fill(memory.address, 0, 4096)).code).toBe('device-lost');
      await expect(stream.finished()).rejects.toMatchObject({ code: 'device-lost' });
      for (const each of [memory, stream, event, matmul]) each.release();
      expect(Object.values(cuda.counts()).every((count) => count === 0)).toBe(true);
    });
  },
);

test.skipIf(emulatorMissing)('releasing the driver rejects pending waits', async () => {
  await withEmulatedCuda({ allow: ['leaks'] }, async (cuda) => {
    const device = cuda.devices[0]!;
    const stream = device.createStream();
    await stream.finished();
    const waiting = stream.finished();
    cuda.release();
    await expect(waiting).rejects.toMatchObject({
      code: 'misuse',
      message: expect.stringContaining('released') as string,
    });
    expect(caught(() => device.createStream()).message).toContain('device 0 was released');
  });
});

test.skipIf(emulatorMissing)('32 waits at once, more than the thread pool has threads, all resolve', async () => {
  await withEmulatedCuda({ devices: 4 }, async (cuda) => {
    const streams = cuda.devices.flatMap((device) =>
      Array.from({ length: 8 }, () => ({ device, stream: device.createStream() })),
    );
    using host = cuda.allocateHost(4096);
    await Promise.all(
      streams.map(async ({ device, stream }, index) => {
        using memory = device.allocate(4096);
        for (let times = 0; times < 5; times++) {
          stream.fill(memory.address, index, 128);
          stream.copy(host.address + index * 128, memory.address, 128);
          await stream.finished();
          expect(host.view(index * 128, 128).every((value) => value === index)).toBe(true);
        }
      }),
    );
    for (const { stream } of streams) stream.release();
  });
});

// Last in this file: the emulated driver keeps the modules of a poisoned context.
test.skipIf(emulatorMissing)('a faulty kernel rejects the wait, and later releases do not hide its error', async () => {
  const wild = 'KERNEL void wild(float* out) { out[1 << 20] = 1; }';
  await withEmulatedCuda({ allow: ['faults', 'leaks'] }, async (cuda) => {
    const device = cuda.devices[0]!;
    using module = await loadKernels(cuda, wild);
    using memory = device.allocate(256);
    using stream = device.createStream();
    using launch = module.kernel('wild').prepare({ grid: [1, 1, 1], block: [1, 1, 1] }, ['pointer']);
    launch.set(0, memory.address);
    stream.launch(launch);
    await expect(stream.finished()).rejects.toMatchObject({ name: 'CudaError', code: 'poisoned' });
    expect(caught(() => device.allocate(256)).code).toBe('poisoned');
  });
});
