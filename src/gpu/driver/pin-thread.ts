/** The thread of pinner.ts. */
import { workerData } from 'node:worker_threads';
import { serve } from '../../process/index.ts';
import { driverFunctions } from './declarations.ts';
import { bind, loadLibrary } from './libraries.ts';
import { pin, pinGiven, unpin, type Pinned } from './host-pages.ts';
import { NativeArena, readInteger64 } from './native-memory.ts';
import type { PinApi, PinOrder } from './pinner.ts';

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

/** Does it in a context. */
function within({ context, kind }: PinOrder, act: () => Pinned): Pinned {
  const status = driver.cuCtxSetCurrent(context);
  return status === 0 ? act() : { call: 'cuCtxSetCurrent', status, address: 0, kind };
}

serve<PinApi>({
  pin: (order) =>
    within(order, () => {
      const { kind, bytes, address = 0 } = order;
      return kind === 'given' ? pinGiven(driver, address, bytes) : pin(driver, out, bytes, kind);
    }),
  free: (order) => within(order, () => unpin(driver, order.address, order.bytes, order.kind)),
});
