import type { Network } from './network.ts';

/**
 * The order in which operators are placed (Chrion, 4.2 and Algorithm 1): breadth-first, so that branches stand side by
 * side, but an operator that waits for nothing else comes right after the one it waits for when copying between them
 * would take longer than running it (its mean over the GPU and all numbers of cores): such a pair belongs together.
 *
 * The paper puts an operator that is not ready yet back into its queue; here it enters the queue when its last
 * predecessor is placed, so that the whole takes time in proportion to operators and edges.
 *
 * @returns positions of operators; empty places never occur because a network has no cycle
 */
export function topologicalOrder(network: Network): Int32Array {
  const { count, predecessors, successors } = network;
  const order = new Int32Array(count);
  const waitsFor = Int32Array.from(predecessors, (links) => links.length);
  const queue: number[] = [];
  for (let node = 0; node < count; node++) if (waitsFor[node] === 0) queue.push(node);
  let placed = 0;
  for (const first of queue) {
    // Depth-first from here on, as long as there is something to merge.
    const stack = [first];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      order[placed++] = node;
      const merged: number[] = [];
      for (const { node: next, copyMs } of successors[node] ?? []) {
        waitsFor[next] = (waitsFor[next] ?? 0) - 1;
        if (waitsFor[next] !== 0) continue;
        const alone = predecessors[next]?.every(({ node: before }) => before === node) === true;
        if (alone && copyMs > meanExecutionMs(network, next)) merged.push(next);
        else queue.push(next);
      }
      stack.push(...merged.reverse());
    }
  }
  return order;
}

/** Mean of an operator's row of the paper's matrix W; over the CPU alone where the GPU cannot run it. */
function meanExecutionMs({ gpuMs, cpuMs }: Network, node: number): number {
  const onGpu = gpuMs[node] ?? Infinity;
  const times = cpuMs.map((column) => column[node] ?? 0);
  if (onGpu !== Infinity) times.push(onGpu);
  return times.reduce((sum, time) => sum + time, 0) / times.length;
}
