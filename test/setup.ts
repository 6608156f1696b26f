import fc from 'fast-check';
import { afterAll, expect, vi } from 'vitest';
import { loadOnnxRuntime } from '../src/tensor/onnx-runtime.ts';
import { waitLimitMs } from './time-limits.ts';

// fast-check prints the seed and path of a failing property; this makes every property of a run use one known seed.
fc.configureGlobal({ seed: Number(process.env['TURNTABLE_SEED']) });

// ONNX Runtime's binding looks for Float16Array (Node 24) when the worker's first tensor is made, by whichever file.
if ('Float16Array' in globalThis) loadOnnxRuntime();

// Vitest compares typed arrays element by element, which takes a second of a core for a million of them. Those with the
// same bytes are equal whatever they hold; all others it compares as before, and shows how they differ.
expect.addEqualityTesters([
  (a: unknown, b: unknown) =>
    ArrayBuffer.isView(a) &&
    ArrayBuffer.isView(b) &&
    Object.getPrototypeOf(a) === Object.getPrototypeOf(b) &&
    a.byteLength === b.byteLength &&
    bytesOf(a).equals(bytesOf(b))
      ? true
      : undefined,
]);
function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

// Vitest has no setting for the limits of these two, a second each.
const { waitFor, waitUntil } = vi;
type WaitOptions = Parameters<typeof waitFor>[1];
const patient = (options: WaitOptions) => ({ ...(typeof options === 'object' && options), timeout: waitLimitMs });
vi.waitFor = (callback, options) => waitFor(callback, patient(options));
vi.waitUntil = (callback, options) => waitUntil(callback, patient(options));

// Files of one worker share its environment, where hosts find settings and the GPUs' driver, so a file must restore
// what it sets. Values set by vi.stubEnv are restored here.
const settings = (): string =>
  JSON.stringify(Object.entries(process.env).filter(([name]) => name.startsWith('TURNTABLE_')));
const before = settings();
afterAll(() => {
  vi.unstubAllEnvs();
  if (settings() !== before) throw new Error(`this file leaves other variables than it found: ${settings()}`);
});
