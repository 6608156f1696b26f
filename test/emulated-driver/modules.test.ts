import { expect, test } from 'vitest';
import { emulatorMissing, withEmulatedCuda } from '../support/emulated-cuda.ts';

test.skipIf(emulatorMissing)('modules with kernels of one name each keep their own', async () => {
  await withEmulatedCuda({}, async (cuda) => {
    const device = cuda.devices[0]!;
    using stream = device.createStream();
    using host = cuda.allocateHost(4096);
    using memory = device.allocate(4096);
    const values = [5, 9, 23];
    const modules = [];
    for (const value of values) {
      const source = `KERNEL void put(int* y) { y[threadIdx.x] = ${value}; }`;
      modules.push(device.loadModule(await cuda.compiler.compile(source, device)));
    }
    const seen = modules.map((module) => {
      using launch = module.kernel('put').prepare({ grid: [1, 1, 1], block: [4, 1, 1] }, ['pointer']);
      launch.set(0, memory.address);
      stream.launch(launch);
      stream.copy(host.address, memory.address, 16);
      stream.synchronize();
      return new Int32Array(host.view(0, 16).slice().buffer)[3];
    });
    expect(seen).toEqual(values);
    for (const module of modules) module.release();
  });
});
