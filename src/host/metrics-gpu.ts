/** Series of the GPUs. What the engine itself says of its memory is asked for at each scrape, which is never a use. */
import { Counter, Gauge, type Registry as PromRegistry } from 'prom-client';
import type { GpuHost } from './gpu/index.ts';

export function addGpuMetrics(prom: PromRegistry, gpus: GpuHost): void {
  const byGpu = (name: string, help: string, read: (gpu: number) => Promise<number> | number): void => {
    const gauge: Gauge = new Gauge({
      name,
      help,
      labelNames: ['gpu_uuid'],
      registers: [prom],
      collect: async (): Promise<void> => {
        gauge.reset();
        for (const { index, uuid } of gpus.info?.devices ?? []) gauge.set({ gpu_uuid: uuid }, await read(index));
      },
    });
  };
  const single = (name: string, help: string, read: () => Promise<number> | number): void => {
    const gauge: Gauge = new Gauge({
      name,
      help,
      registers: [prom],
      collect: async (): Promise<void> => gauge.set(await read()),
    });
  };
  byGpu('nv_gpu_memory_total_bytes', 'Memory of the GPU that functions may have', (gpu) => {
    return gpus.info?.devices[gpu]?.limitBytes ?? 0;
  });
  byGpu('nv_gpu_memory_used_bytes', 'Of it in use: weights, activations, constants', async (gpu) => {
    const memory = (await gpus.freshState())?.memory.find((each) => each.gpu === gpu);
    return memory === undefined ? 0 : memory.limitBytes - memory.freeBytes;
  });
  byGpu('turntable_gpu_weight_bytes', 'Weights of functions on the GPU, those on their way included', async (gpu) => {
    return (await gpus.freshState())?.memory.find((each) => each.gpu === gpu)?.weightBytes ?? 0;
  });
  byGpu('nv_gpu_utilization', 'Share of the latest 10 seconds in which the GPU executed functions', (gpu) => {
    return gpus.live.utilization(gpu);
  });
  const linkBytes: Counter = new Counter({
    name: 'turntable_gpu_link_bytes_total',
    help: "Bytes that copies of the GPU process moved over the GPU's link: from_host, to_host, to_peers",
    labelNames: ['gpu_uuid', 'direction'],
    registers: [prom],
    collect: async (): Promise<void> => {
      const links = (await gpus.freshState())?.links ?? [];
      linkBytes.reset();
      for (const { gpu, fromHost, toHost, toPeers } of links) {
        const uuid = gpus.info?.devices[gpu]?.uuid ?? '';
        for (const [direction, bytes] of Object.entries({ from_host: fromHost, to_host: toHost, to_peers: toPeers }))
          linkBytes.inc({ gpu_uuid: uuid, direction }, bytes);
      }
    },
  });
  single('nv_pinned_memory_pool_total_bytes', 'Host memory that weights may be pinned in', async () => {
    return (await gpus.freshState())?.host.budgetBytes ?? 0;
  });
  single('nv_pinned_memory_pool_used_bytes', 'Of it filled with weights', async () => {
    return (await gpus.freshState())?.host.usedBytes ?? 0;
  });
  const planChanges: Counter = new Counter({
    name: 'turntable_plan_changes_total',
    help: 'Resident functions that went to a smaller plan for room, or to a larger one with room that was there',
    labelNames: ['function', 'direction'],
    registers: [prom],
    collect: (): void => {
      planChanges.reset();
      for (const key of gpus.live.keys()) {
        const { shrinks, growths } = gpus.live.planChanges(key);
        const name = key.slice(0, key.lastIndexOf('@'));
        if (shrinks > 0) planChanges.inc({ function: name, direction: 'smaller' }, shrinks);
        if (growths > 0) planChanges.inc({ function: name, direction: 'larger' }, growths);
      }
    },
  });
  const states: Gauge = new Gauge({
    name: 'turntable_gpu_functions',
    help: 'Functions by the state that they have on the GPUs; disagreed: the answer there was wrong',
    labelNames: ['state'],
    registers: [prom],
    collect: (): void => {
      states.reset();
      for (const { state } of gpus.records()) states.inc({ state: state.kind });
    },
  });
  single('turntable_gpu_up', 'Whether the GPU process serves', () => (gpus.status === 'up' ? 1 : 0));
  single('turntable_gpu_restarts', 'GPU processes that were started after the first', () => gpus.restarts);
}
