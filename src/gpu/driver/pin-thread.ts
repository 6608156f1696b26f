/** The thread that pins host memory: see pinner.ts. */
import { workerData } from 'node:worker_threads';
import { serve } from '../../process/index.ts';
import { driverFunctions } from './declarations.ts';
import { bind, loadLibrary } from './libraries.ts';
import { NativeArena, readInteger64 } from './native-memory.ts';
import { pinFlags, type Pinned, type PinRequest } from './pin-protocol.ts';

const { cuCtxSetCurrent, cuMemHostAlloc, cuMemFreeHost } = driverFunctions;
const { libraryFile } = workerData as { readonly libraryFile: string };
const driver = bind(loadLibrary('libcuda', { path: libraryFile }), { cuCtxSetCurrent, cuMemHostAlloc, cuMemFreeHost });
const out = new NativeArena().allocate(8);

function answer(request: PinRequest): Pinned {
  const current = driver.cuCtxSetCurrent(request.context);
  if (current !== 0) return { call: 'cuCtxSetCurrent', status: current, address: 0 };
  if (request.op === 'free') {
    return { call: 'cuMemFreeHost', status: driver.cuMemFreeHost(request.address), address: 0 };
  }
  const status = driver.cuMemHostAlloc(out.address, request.bytes, pinFlags);
  return { call: 'cuMemHostAlloc', status, address: status === 0 ? readInteger64(out.data, 0) : 0 };
}

serve<PinRequest>(async (request) => ({ answer: answer(request) }), { inOrder: true });
