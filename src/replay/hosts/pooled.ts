/** A fleet as a single scheduler with all GPUs in one machine: the upper bound for any routing between hosts. */
import type { GpuOffer, OfferSheet, SchedulerGpu } from '../../schedule/index.ts';
import type { SimulatorOptions } from '../simulator-options.ts';
import { getOrMake } from '../../tools/index.ts';

/** All hosts' GPUs, cores and memory together; links are borrowed within a host only, as before. */
export function pooledOptions(options: SimulatorOptions, hosts: number): SimulatorOptions {
  const { gpus, cpu, host, sheetOf } = options;
  const switches = Math.max(0, ...gpus.map((gpu) => gpu.switch + 1));
  const pooledGpus: SchedulerGpu[] = Array.from({ length: hosts }, (_, index) =>
    gpus.map((gpu) => ({ ...gpu, switch: index * switches + gpu.switch })),
  ).flat();
  // Functions of one model share its offers, and must go on sharing them.
  const pooled = new WeakMap<OfferSheet['gpus'], OfferSheet['gpus']>();
  return {
    ...options,
    gpus: pooledGpus,
    cpu: cpu && { ...cpu, cores: cpu.cores * hosts, memoryBytes: cpu.memoryBytes * hosts },
    host: host && { capacityBytes: host.capacityBytes * hosts, diskGBps: host.diskGBps * hosts },
    sheetOf: (functionIndex, name) => {
      const sheet = sheetOf(functionIndex, name);
      const offers = getOrMake(pooled, sheet.gpus, () =>
        Array.from({ length: hosts }, (_, index) =>
          sheet.gpus.map((offer) => offer && movedOffer(offer, index * gpus.length)),
        ).flat(),
      );
      return { ...sheet, gpus: offers };
    },
  };
}

/** The same offer for a host whose first GPU has this number. */
function movedOffer(offer: GpuOffer, firstGpu: number): GpuOffer {
  const [first, ...others] = offer.ways.map(({ transfers: [own, ...lent], ...way }) => {
    const moved = (transfer: typeof own) => ({ ...transfer, link: transfer.link + firstGpu });
    return { ...way, transfers: [moved(own), ...lent.map(moved)] as const };
  });
  return {
    ...offer,
    ways: [first!, ...others],
    ...(offer.smaller && { smaller: movedOffer(offer.smaller, firstGpu) }),
  };
}
