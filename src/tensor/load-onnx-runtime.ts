/** ONNX Runtime's binding, the same on every Node. */
import { createRequire } from 'node:module';
import type * as OrtModule from 'onnxruntime-node';
import type * as BindingModule from 'onnxruntime-node/dist/binding.js';

/**
 * Loads ONNX Runtime's binding: some 50 ms the first time in a process.
 *
 * Its tensors of half precision hold the bits as a Uint16Array, on every version of Node. Left to itself the binding
 * would take a Float16Array where the language has one (Node 24): its JavaScript half turns given bits into numbers
 * then, and its native half (1.30) takes such an array for an empty one. It looks for the type once, when its first
 * tensor is made.
 */
export function loadOnnxRuntime(): typeof OrtModule {
  return (loaded ??= load());
}

let loaded: typeof OrtModule | undefined;
const require = createRequire(import.meta.url);

/** What {@link loadOnnxRuntime} calls. */
export function loadBinding(): typeof BindingModule {
  loadOnnxRuntime();
  return require('onnxruntime-node/dist/binding.js') as typeof BindingModule;
}

function load(): typeof OrtModule {
  // It would report its use to its maker; whoever starts a process has seen to it for that one (src/process/child.ts).
  process.env['ORT_DISABLE_TELEMETRY'] ??= '1';
  // Through require: the package is CommonJS, and this way loading it is one synchronous step that can be timed.
  const ort = require('onnxruntime-node') as typeof OrtModule;
  const float16Array = Object.getOwnPropertyDescriptor(globalThis, 'Float16Array');
  if (float16Array === undefined) return ort;
  Reflect.deleteProperty(globalThis, 'Float16Array');
  try {
    void new ort.Tensor('uint8', new Uint8Array(1), [1]);
  } finally {
    Object.defineProperty(globalThis, 'Float16Array', float16Array);
  }
  return ort;
}
