/** The thread of pinner.ts. */
import { workerData } from 'node:worker_threads';
import { serve } from '../../process/index.ts';
import { driverFunctions } from './declarations.ts';
import { bind, loadLibrary } from './libraries.ts';
import { pin, unpin, type Pinned } from './host-pages.ts';
import { NativeArena, readInteger64 } from './native-memory.ts';
import type { PinRequest } from './pin-protocol.ts';

const { cuCtxSetCurrent, cuMemHostAlloc, cuMemFreeHost, cuMemHostRegister_v2, cuMemHostUnregister } = driverFunctions;
const { libraryFile } = workerData as { readonly libraryFile: string };
const driver = bind(loadLibrary('libcuda', { path: libraryFile }), {
  cuCtxSetCurrent,
  cuMemHostAlloc,
  cuMemFreeHost,
  cuMemHostRegister_v2,
  cuMemHostUnregister,
});
const block = new NativeArena().allocate(8);
const out = { address: block.address, read: () => readInteger64(block.data, 0) };

function answer(request: PinRequest): Pinned {
  const { context, kind, bytes } = request;
  const current = driver.cuCtxSetCurrent(context);
  if (current !== 0) return { call: 'cuCtxSetCurrent', status: current, address: 0, kind };
  return request.op === 'free' ? unpin(driver, request.address, bytes, kind) : pin(driver, out, bytes, kind);
}

serve<PinRequest>(async (request) => ({ answer: answer(request) }), { inOrder: true });
