import fc from 'fast-check';
import { afterAll, vi } from 'vitest';
import { loadOnnxRuntime } from '../src/tensor/onnx-runtime.ts';

// fast-check prints the seed and path of a failing property; this makes every property of a run use one known seed.
fc.configureGlobal({ seed: Number(process.env['TURNTABLE_SEED']) });

// ONNX Runtime's binding looks for Float16Array (Node 24) when the worker's first tensor is made, by whichever file.
if ('Float16Array' in globalThis) loadOnnxRuntime();

// Files of one worker share its environment, where hosts find settings and the GPUs' driver, so a file must restore
// what it sets. Values set by vi.stubEnv are restored here.
const settings = (): string =>
  JSON.stringify(Object.entries(process.env).filter(([name]) => name.startsWith('TURNTABLE_')));
const before = settings();
afterAll(() => {
  vi.unstubAllEnvs();
  if (settings() !== before) throw new Error(`this file leaves other variables than it found: ${settings()}`);
});
