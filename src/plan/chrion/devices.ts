import { CoreLanes } from './core-lanes.ts';
import { noWeights, type Network } from './network.ts';

/** Where each operator runs: 0 for the GPU, j for core j of the CPU (Chrion, constraint 9, but with the core). */
export type Devices = Int32Array;

/** Where each operator may run. Operators that the GPU cannot run by the profile run on the CPU in any case. */
export type Sides = Uint8Array;

export const gpuDevice = 0;
export const anySide = 0;
export const gpuSide = 1;
export const cpuSide = 2;

export const bytesPerMegabyte = 1e6;

/**
 * Picks a device for each operator, in the given order, by the least `EFT + alpha M` (Chrion, 4.3 and Algorithm 2 for
 * one number of cores k').
 *
 * EST and EFT follow Equations 2 and 3 with two differences. The GPU does nothing else while a tensor is copied to or
 * from it, so each crossing tensor also takes GPU time: with copies as pure delay, plans look a third faster than they
 * are. And if a call on a core costs something, an operator either joins the call of its inputs or makes its own call
 * on the first free core, whichever is better ({@link CoreLanes}).
 *
 * M of an operator on the GPU is its own memory, the outputs that are copied to it (Equation 4), and its weights unless
 * they are there already for another operator; on the CPU it is 0.
 * @param cores k', 0 for the GPU alone
 * @param alpha milliseconds per megabyte of GPU memory
 */
export function selectDevices(
  network: Network,
  order: Int32Array,
  cores: number,
  alpha: number,
  sides?: Sides,
): Devices {
  const { count, tensorCount, gpuMs, ownBytes, copiedBytes, weightsOf, weightBytes, into } = network;
  const devices = new Int32Array(count);
  const endMs = new Float64Array(count);
  // When a tensor is on the other side; -1 before that.
  const crossedMs = new Float64Array(tensorCount).fill(-1);
  const weightsAreThere = new Uint8Array(weightBytes.length);
  const lanes = new CoreLanes(network, cores, devices, endMs);
  let gpuFreeMs = 0;
  for (const node of order) {
    const weights = weightsOf[node] ?? noWeights;
    let gpuReadyMs = 0;
    let cpuReadyMs = 0;
    let inCopiesMs = 0;
    let outCopiesMs = 0;
    let bytes = ownBytes[node] ?? 0;
    if (weights !== noWeights && weightsAreThere[weights] === 0) bytes += weightBytes[weights] ?? 0;
    const firstRow = into.startOf[node] as number;
    const lastRow = into.startOf[node + 1] as number;
    for (let row = firstRow; row < lastRow; row++) {
      const before = into.node[row] as number;
      const tensor = into.tensor[row] as number;
      const copyMs = into.copyMs[row] as number;
      const doneMs = endMs[before] ?? 0;
      const earlierMs = crossedMs[tensor] ?? -1;
      const copiedMs = earlierMs < 0 ? doneMs + copyMs : earlierMs;
      if (devices[before] === gpuDevice) {
        if (earlierMs < 0) outCopiesMs += copyMs;
        if (doneMs > gpuReadyMs) gpuReadyMs = doneMs;
        if (copiedMs > cpuReadyMs) cpuReadyMs = copiedMs;
      } else {
        if (earlierMs < 0) {
          inCopiesMs += copyMs;
          bytes += copiedBytes[before] ?? 0;
        }
        if (copiedMs > gpuReadyMs) gpuReadyMs = copiedMs;
        if (doneMs > cpuReadyMs) cpuReadyMs = doneMs;
      }
    }
    const gpuEndMs = Math.max(gpuFreeMs + inCopiesMs, gpuReadyMs) + (gpuMs[node] ?? 0);
    const gpuCost = gpuEndMs + alpha * (bytes / bytesPerMegabyte);
    const side = sides?.[node] ?? anySide;
    const onCore = side === gpuSide && gpuEndMs !== Infinity ? undefined : lanes.choose(node, cpuReadyMs, crossedMs);
    const toGpu = onCore === undefined || (gpuCost <= onCore.endMs && side !== cpuSide);
    if (toGpu) {
      devices[node] = gpuDevice;
      endMs[node] = gpuEndMs;
      gpuFreeMs = gpuEndMs;
      if (weights !== noWeights) weightsAreThere[weights] = 1;
    } else {
      lanes.place(node, onCore);
      gpuFreeMs += outCopiesMs;
    }
    for (let row = firstRow; row < lastRow; row++) {
      const before = into.node[row] as number;
      const tensor = into.tensor[row] as number;
      if ((devices[before] === gpuDevice) === toGpu || (crossedMs[tensor] ?? -1) >= 0) continue;
      crossedMs[tensor] = toGpu ? gpuEndMs - (gpuMs[node] ?? 0) : (endMs[before] ?? 0) + (into.copyMs[row] as number);
    }
  }
  return devices;
}

/** GPU memory of a selection, in bytes (Chrion, Equation 4). Shared weights and copied tensors count once. */
export function gpuBytesOf(network: Network, devices: Devices): number {
  const { tensorCount, ownBytes, copiedBytes, weightBytes, into } = network;
  const copied = new Uint8Array(tensorCount);
  let total = 0;
  // Of many candidates: an iterator over the entries took four times as long.
  for (let node = 0; node < devices.length; node++) {
    if (devices[node] !== gpuDevice) continue;
    total += ownBytes[node] ?? 0;
    for (let row = into.startOf[node] as number; row < (into.startOf[node + 1] as number); row++) {
      const before = into.node[row] as number;
      const tensor = into.tensor[row] as number;
      if (devices[before] === gpuDevice || copied[tensor] === 1) continue;
      copied[tensor] = 1;
      total += copiedBytes[before] ?? 0;
    }
  }
  const there = weightsOnGpu(network, devices);
  for (let weights = 0; weights < there.length; weights++) {
    if (there[weights] === 1) total += weightBytes[weights] ?? 0;
  }
  return total;
}

/** 1 for each of the weights that an operator on the GPU reads. */
export function weightsOnGpu({ weightsOf, weightBytes }: Network, devices: Devices): Uint8Array {
  const there = new Uint8Array(weightBytes.length);
  for (let node = 0; node < devices.length; node++) {
    const weights = weightsOf[node] ?? noWeights;
    if (devices[node] === gpuDevice && weights !== noWeights) there[weights] = 1;
  }
  return there;
}
