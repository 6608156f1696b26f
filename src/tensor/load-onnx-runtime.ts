/** ONNX Runtime's binding, with the same behaviour on every Node version. */
import { createRequire } from 'node:module';
import type * as OrtModule from 'onnxruntime-node';
import type * as BindingModule from 'onnxruntime-node/dist/binding.js';

/**
 * Loads ONNX Runtime's binding: some 50 ms the first time in a process.
 *
 * Half-precision tensors hold their bits as a Uint16Array on every version of Node. By default the binding would use
 * Float16Array if the language has it (Node 24): its JavaScript half then converts the given bits to numbers, and its
 * native half (1.30) reads such an array as empty. The binding looks for the type once, when its first tensor is made.
 */
export function loadOnnxRuntime(): typeof OrtModule {
  return (loaded ??= load());
}

let loaded: typeof OrtModule | undefined;
const require = createRequire(import.meta.url);

/** The native binding that {@link loadOnnxRuntime} calls. */
export function loadBinding(): typeof BindingModule {
  loadOnnxRuntime();
  return require('onnxruntime-node/dist/binding.js') as typeof BindingModule;
}

function load(): typeof OrtModule {
  // Stops ONNX Runtime from reporting its use. Processes started by src/process/child.ts have this set already.
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

/** Of the installed package, which is not loaded. */
export function onnxRuntimeVersion(): string {
  return (require('onnxruntime-node/package.json') as { readonly version: string }).version;
}
