/**
 * Pinned memory of one run's inputs and outputs. Those in memory that the host shares are read and written there, so that
 * this process copies nothing. Others are in a buffer.
 */
import type { Tensor } from '../../tensor/index.ts';
import type { DeviceAddress } from '../driver/types.ts';
import { alignUp } from '../program/arena.ts';
import type { ProgramTensor } from '../program/types.ts';
import type { RunContext } from './run-context.ts';

export interface RunIo extends Disposable {
  readonly inputs: readonly { readonly tensor: ProgramTensor; readonly address: DeviceAddress }[];
  readonly outputs: readonly {
    readonly tensor: ProgramTensor;
    readonly address: DeviceAddress;
    readonly view: Uint8Array;
  }[];
}

/** A GPU's part of a plan may have no tensors of its own, and tensors may be empty. */
const noBytes = { address: 0, view: new Uint8Array(0) };

/** @param lends the outputs go to the host from where they are @throws CudaError */
export async function runIoOf(
  { io, shared }: RunContext,
  inputs: readonly { readonly tensor: ProgramTensor; readonly given: Tensor }[],
  outputs: readonly ProgramTensor[],
  lends: boolean,
): Promise<RunIo> {
  const held: Disposable[] = [];
  const dispose = (): void => held.splice(0).forEach((each) => each[Symbol.dispose]());
  const hold = <Held extends Disposable>(each: Held | undefined): Held | undefined => {
    if (each !== undefined) held.push(each);
    return each;
  };
  const leases = inputs.map(({ given }) => hold(shared?.input(given.data)));
  const outputBytes = outputs.reduce((sum, { bytes }) => sum + bytes, 0);
  const reservation = lends ? hold(shared?.outputs(outputBytes)) : undefined;
  try {
    let bytes = 0;
    const places = inputs.map(({ given }, index) => {
      if (leases[index] !== undefined) return 0;
      const at = bytes;
      bytes += alignUp(given.data.byteLength);
      return at;
    });
    const outputsAt = bytes;
    if (reservation === undefined) bytes += outputBytes;
    const buffer = bytes === 0 ? noBytes : hold(await io.allocate(bytes))!;
    const written = reservation ?? { address: buffer.address + outputsAt, view: buffer.view.subarray(outputsAt) };
    let at = 0;
    return {
      inputs: inputs.map(({ tensor, given }, index) => {
        const lease = leases[index];
        if (lease !== undefined) return { tensor, address: lease.address };
        buffer.view.set(given.data, places[index]);
        return { tensor, address: buffer.address + places[index]! };
      }),
      // Without gaps, as in a message.
      outputs: outputs.map((tensor) => {
        const from = at;
        at += tensor.bytes;
        return { tensor, address: written.address + from, view: written.view.subarray(from, at) };
      }),
      [Symbol.dispose]: dispose,
    };
  } catch (error) {
    dispose();
    throw error;
  }
}
