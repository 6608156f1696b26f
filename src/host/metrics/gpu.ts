/** Metrics of the GPUs. The engine is asked for its memory state once a scrape, which is never a use. */
import type { GpuProcessState } from '../../gpu/index.ts';
import type { Exposition } from './exposition.ts';
import type { GpuHost } from '../gpu/index.ts';

/** @param state the engine's answer to this scrape; undefined if it has not answered yet */
export function addGpuMetrics(
  { counter, gauge }: Exposition,
  gpus: GpuHost,
  state: () => GpuProcessState | undefined,
): void {
  const byGpu = (name: string, help: string, read: (gpu: number) => number | undefined): void =>
    gauge(name, help, (set) => {
      for (const { index, uuid } of gpus.info?.devices ?? []) set({ gpu_uuid: uuid }, read(index) ?? 0);
    });
  const memoryOf = (gpu: number) => state()?.memory.find((each) => each.gpu === gpu);
  byGpu('nv_gpu_memory_total_bytes', 'Memory of the GPU that functions may have', (gpu) => {
    return gpus.info?.devices[gpu]?.limitBytes;
  });
  byGpu('nv_gpu_memory_used_bytes', 'Of it in use: weights, activations, constants', (gpu) => {
    const memory = memoryOf(gpu);
    return memory && memory.limitBytes - memory.freeBytes;
  });
  byGpu('turntable_gpu_weight_bytes', 'Weights of functions on the GPU, those on their way included', (gpu) => {
    return memoryOf(gpu)?.weightBytes;
  });
  byGpu('nv_gpu_utilization', 'Share of the latest 10 seconds in which the GPU executed functions', (gpu) => {
    return gpus.live.utilization(gpu);
  });
  counter(
    'turntable_gpu_link_bytes_total',
    "Bytes that copies of the GPU process moved over the GPU's link: from_host, to_host, to_peers",
    (add) => {
      for (const { gpu, fromHost, toHost, toPeers } of state()?.links ?? []) {
        const gpuUuid = gpus.info?.devices[gpu]?.uuid ?? '';
        for (const [direction, bytes] of Object.entries({ from_host: fromHost, to_host: toHost, to_peers: toPeers }))
          add({ gpu_uuid: gpuUuid, direction }, bytes);
      }
    },
  );
  counter(
    'turntable_gpu_coded_layers_wrong_total',
    'Coded layers whose bytes changed on their way to a GPU: they were loaded again as they are',
    (add) => add({}, state()?.layersRepaired ?? 0),
  );
  gauge('nv_pinned_memory_pool_total_bytes', 'Host memory that weights may be pinned in', () => {
    return state()?.host.budgetBytes ?? 0;
  });
  gauge('nv_pinned_memory_pool_used_bytes', 'Of it filled with weights', () => state()?.host.usedBytes ?? 0);
  counter(
    'turntable_plan_changes_total',
    'Resident functions that went to a smaller plan for room, or to a larger one with room that was there',
    (add) => {
      for (const key of gpus.live.keys()) {
        const { shrinks, growths } = gpus.live.planChanges(key);
        const name = key.slice(0, key.lastIndexOf('@'));
        if (shrinks > 0) add({ function: name, direction: 'smaller' }, shrinks);
        if (growths > 0) add({ function: name, direction: 'larger' }, growths);
      }
    },
  );
  gauge(
    'turntable_gpu_functions',
    'Functions by the state that they have on the GPUs; disagreed: the answer there was wrong',
    (set) => {
      const counts = new Map<string, number>();
      for (const { state: of } of gpus.records()) counts.set(of.kind, (counts.get(of.kind) ?? 0) + 1);
      for (const [kind, count] of counts) set({ state: kind }, count);
    },
  );
  gauge('turntable_gpu_up', 'Whether the GPU process serves', () => (gpus.status === 'up' ? 1 : 0));
  gauge('turntable_gpu_restarts', 'GPU processes that were started after the first', () => gpus.restarts);
}
