import type { Network } from './network.ts';

/**
 * The order in which operators are placed (Chrion, 4.2 and Algorithm 1): breadth-first, so that branches run in
 * parallel. But an operator with a single predecessor comes right after it if copying between them would take longer
 * than running it (its mean over the GPU and all numbers of cores): such a pair belongs together.
 *
 * The paper puts an operator that is not ready back into its queue; here it enters the queue when its last predecessor
 * is placed, so the time is proportional to operators and edges.
 * @returns positions of operators; no place is empty since a network has no cycle
 */
export function topologicalOrder(network: Network): Int32Array {
  const { count, into, outOf } = network;
  const order = new Int32Array(count);
  const waitsFor = new Int32Array(count);
  const queue: number[] = [];
  for (let node = 0; node < count; node++) {
    waitsFor[node] = (into.startOf[node + 1] as number) - (into.startOf[node] as number);
    if (waitsFor[node] === 0) queue.push(node);
  }
  let placed = 0;
  for (const first of queue) {
    // Depth-first from here on, as long as there is something to merge.
    const stack = [first];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      order[placed++] = node;
      const merged: number[] = [];
      for (let row = outOf.startOf[node] as number; row < (outOf.startOf[node + 1] as number); row++) {
        const next = outOf.node[row] as number;
        waitsFor[next] = (waitsFor[next] as number) - 1;
        if (waitsFor[next] !== 0) continue;
        const alone = takesOnlyFrom(network, next, node);
        if (alone && (outOf.copyMs[row] as number) > meanExecutionMs(network, next)) merged.push(next);
        else queue.push(next);
      }
      stack.push(...merged.reverse());
    }
  }
  return order;
}

function takesOnlyFrom({ into }: Network, node: number, from: number): boolean {
  for (let row = into.startOf[node] as number; row < (into.startOf[node + 1] as number); row++) {
    if (into.node[row] !== from) return false;
  }
  return true;
}

/** Mean of an operator's row of the paper's matrix W; over the CPU alone if the GPU cannot run it. */
function meanExecutionMs({ gpuMs, cpuMs }: Network, node: number): number {
  const onGpu = gpuMs[node] ?? Infinity;
  const times = cpuMs.map((column) => column[node] ?? 0);
  if (onGpu !== Infinity) times.push(onGpu);
  return times.reduce((sum, time) => sum + time, 0) / times.length;
}
