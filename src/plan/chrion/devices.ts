import type { Network } from './network.ts';

/** Where each operator runs: 0 for the GPU, j for core j of the CPU (Chrion, constraint 9 with the core kept). */
export type Devices = Int32Array;

export const gpuDevice = 0;

const bytesPerMegabyte = 1e6;

/**
 * Picks a device for each operator, in the given order, by the least `EFT + alpha M` (Chrion, 4.3 and Algorithm 2 for
 * one number of cores k').
 *
 * EST and EFT follow Equations 2 and 3 with one difference: the GPU copies nothing and computes nothing else while a
 * tensor is copied to or from it, so each crossing edge takes its time out of the GPU as well. With copies as pure delay
 * the plans look a third faster than they are.
 *
 * M of an operator on the GPU is its own memory and the outputs that are copied to it (Equation 4); on the CPU it is 0.
 *
 * @param cores k', 0 for the GPU alone
 * @param alpha milliseconds per megabyte of GPU memory
 */
export function selectDevices(network: Network, order: Int32Array, cores: number, alpha: number): Devices {
  const { count, gpuMs, ownBytes, outputBytes, predecessors } = network;
  const cpuMs = network.cpuMs[cores - 1];
  const devices = new Int32Array(count);
  const endMs = new Float64Array(count);
  const freeMs = new Float64Array(cores + 1);
  for (const node of order) {
    let gpuReadyMs = 0;
    let cpuReadyMs = 0;
    let inCopiesMs = 0;
    let outCopiesMs = 0;
    let bytes = ownBytes[node] ?? 0;
    for (const { node: before, copyMs } of predecessors[node] ?? []) {
      const doneMs = endMs[before] ?? 0;
      const copiedMs = doneMs + copyMs;
      if (devices[before] === gpuDevice) {
        outCopiesMs += copyMs;
        if (doneMs > gpuReadyMs) gpuReadyMs = doneMs;
        if (copiedMs > cpuReadyMs) cpuReadyMs = copiedMs;
      } else {
        inCopiesMs += copyMs;
        bytes += outputBytes[before] ?? 0;
        if (copiedMs > gpuReadyMs) gpuReadyMs = copiedMs;
        if (doneMs > cpuReadyMs) cpuReadyMs = doneMs;
      }
    }
    const gpuFreeMs = freeMs[gpuDevice] ?? 0;
    const gpuEndMs = Math.max(gpuFreeMs + inCopiesMs, gpuReadyMs) + (gpuMs[node] ?? 0);
    const gpuCost = gpuEndMs + alpha * (bytes / bytesPerMegabyte);
    const core = firstFree(freeMs);
    const cpuEndMs =
      core === undefined || cpuMs === undefined
        ? Infinity
        : Math.max(freeMs[core] ?? 0, cpuReadyMs) + (cpuMs[node] ?? 0);
    if (core === undefined || gpuCost <= cpuEndMs) {
      devices[node] = gpuDevice;
      endMs[node] = gpuEndMs;
      freeMs[gpuDevice] = gpuEndMs;
    } else {
      devices[node] = core;
      endMs[node] = cpuEndMs;
      freeMs[core] = cpuEndMs;
      freeMs[gpuDevice] = gpuFreeMs + outCopiesMs;
    }
  }
  return devices;
}

/** Every operator on the CPU: each to the core that is free first. */
export function selectCores(network: Network, order: Int32Array, cores: number): Devices {
  const { count, predecessors } = network;
  const cpuMs = network.cpuMs[cores - 1] as Float64Array;
  const devices = new Int32Array(count);
  const endMs = new Float64Array(count);
  const freeMs = new Float64Array(cores + 1);
  for (const node of order) {
    const core = firstFree(freeMs) as number;
    let startMs = freeMs[core] ?? 0;
    for (const { node: before } of predecessors[node] ?? []) startMs = Math.max(startMs, endMs[before] ?? 0);
    devices[node] = core;
    freeMs[core] = endMs[node] = startMs + (cpuMs[node] ?? 0);
  }
  return devices;
}

/** GPU memory of a selection, in bytes (Chrion, Equation 4). */
export function gpuBytesOf({ ownBytes, outputBytes, predecessors }: Network, devices: Devices): number {
  let total = 0;
  for (const [node, device] of devices.entries()) {
    if (device !== gpuDevice) continue;
    total += ownBytes[node] ?? 0;
    for (const { node: before } of predecessors[node] ?? []) {
      if (devices[before] !== gpuDevice) total += outputBytes[before] ?? 0;
    }
  }
  return total;
}

/** The core of the earliest time; undefined when there is none. All cores are alike, so no other can end earlier. */
function firstFree(freeMs: Float64Array): number | undefined {
  if (freeMs.length < 2) return undefined;
  let first = 1;
  for (let core = 2; core < freeMs.length; core++) {
    if ((freeMs[core] as number) < (freeMs[first] as number)) first = core;
  }
  return first;
}
