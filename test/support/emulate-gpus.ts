/** GPUs for the hosts that a test file starts in its own process: their GPU processes open the emulated driver. */
import { vi } from 'vitest';
import { buildEmulatedDriver } from '../emulated-driver/build.ts';
import { emulatedEnvironment, type EmulatedDevice } from './emulator.ts';

/** Sets the variables that name the driver and its devices, until the file ends (see test/setup.ts). */
export async function emulateGpus(devices: readonly EmulatedDevice[]): Promise<void> {
  const driver = await buildEmulatedDriver();
  if (driver === undefined) throw new Error('the emulated driver was not built: skip this test by emulatorMissing');
  for (const [name, value] of Object.entries(emulatedEnvironment(driver, devices))) vi.stubEnv(name, value);
}
