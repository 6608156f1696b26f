import { gpuDevice, type Devices } from './devices.ts';
import type { Network } from './network.ts';

/** One copy of one edge's tensor between host and GPU, on the GPU's stream. */
export interface Copy {
  /** Positions of the operators at the ends of the edge. */
  readonly from: number;
  readonly to: number;
  readonly direction: 'to-gpu' | 'to-cpu';
  readonly startMs: number;
  readonly endMs: number;
}

/** What happens when: every device does one thing at a time. */
export interface Timeline {
  readonly startMs: Float64Array;
  readonly endMs: Float64Array;
  readonly copies: readonly Copy[];
  /** End of the last operator (Chrion, Equation 1). */
  readonly latencyMs: number;
}

/**
 * Runs a selection: every device takes its operators in the given order and waits for what they need. The GPU's stream
 * holds, for each of its operators, the copies of what comes from the CPU, the operator, and the copies of what the CPU
 * needs of it, in this order; it is what decides between plans, and not the greedy choice's own estimate.
 */
export function timelineOf(network: Network, order: Int32Array, cores: number, devices: Devices): Timeline {
  const { count, edgeCount, gpuMs, predecessors, successors } = network;
  const cpuMs = network.cpuMs[cores - 1];
  const startMs = new Float64Array(count);
  const endMs = new Float64Array(count);
  const arrivedMs = new Float64Array(edgeCount);
  const freeMs = new Float64Array(cores + 1);
  const copies: Copy[] = [];
  let latencyMs = 0;
  for (const node of order) {
    const device = devices[node] ?? gpuDevice;
    let nowMs = freeMs[device] ?? 0;
    for (const { node: before, edge, copyMs } of predecessors[node] ?? []) {
      const fromGpu = devices[before] === gpuDevice;
      if (fromGpu === (device === gpuDevice)) {
        nowMs = Math.max(nowMs, endMs[before] ?? 0);
      } else if (fromGpu) {
        nowMs = Math.max(nowMs, arrivedMs[edge] ?? 0);
      } else {
        const copyStartMs = Math.max(nowMs, endMs[before] ?? 0);
        nowMs = copyStartMs + copyMs;
        copies.push({ from: before, to: node, direction: 'to-gpu', startMs: copyStartMs, endMs: nowMs });
      }
    }
    startMs[node] = nowMs;
    nowMs += (device === gpuDevice ? gpuMs[node] : cpuMs?.[node]) ?? 0;
    endMs[node] = nowMs;
    latencyMs = Math.max(latencyMs, nowMs);
    if (device === gpuDevice) {
      for (const { node: next, edge, copyMs } of successors[node] ?? []) {
        if (devices[next] === gpuDevice) continue;
        copies.push({ from: node, to: next, direction: 'to-cpu', startMs: nowMs, endMs: nowMs + copyMs });
        nowMs += copyMs;
        arrivedMs[edge] = nowMs;
      }
    }
    freeMs[device] = nowMs;
  }
  return { startMs, endMs, copies, latencyMs };
}
