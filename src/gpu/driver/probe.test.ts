import { join } from 'node:path';
import { expect, test } from 'vitest';
import { emulatorMissing } from '../../../test/support/emulated-cuda.ts';
import { buildEmulatedDriver } from '../../../test/emulated-driver/build.ts';
import { probeCuda } from './probe.ts';

test.skipIf(emulatorMissing)('a probe reports the loaded libraries, their origins, and the devices', async () => {
  const driver = (await buildEmulatedDriver())!;
  const machine = JSON.stringify({ devices: [{ name: 'first' }, { name: 'second', computeCapability: [8, 0] }] });
  const probe = await probeCuda({ ...process.env, ...driver.environment, TURNTABLE_EMULATOR: machine });
  expect(probe).toMatchObject({
    state: 'opens',
    libraries: {
      libcuda: { path: driver.libcuda, origin: 'TURNTABLE_LIBCUDA' },
      libnvrtc: { path: driver.libnvrtc, origin: 'TURNTABLE_LIBNVRTC' },
      libcublasLt: { path: driver.libcublasLt, origin: 'TURNTABLE_LIBCUBLASLT' },
    },
    devices: [
      { name: 'first', computeCapability: '9.0' },
      { name: 'second', computeCapability: '8.0' },
    ],
  });
});

test('a probe without a driver names the file that was tried', async () => {
  const path = join(import.meta.dirname, 'nothing.so');
  const probe = await probeCuda({ ...process.env, TURNTABLE_LIBCUDA: path });
  expect(probe).toMatchObject({ state: 'fails', reason: expect.stringContaining(path) as string });
});
