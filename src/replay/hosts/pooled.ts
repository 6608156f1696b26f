/** A fleet as a single scheduler with all GPUs in one machine: the upper bound for any routing between hosts. */
import type { LogicalCore } from '../../hardware/index.ts';
import type { GpuOffer, OfferSheet, SchedulerGpu } from '../../schedule/index.ts';
import type { SimulatorOptions } from '../simulator-options.ts';
import { getOrMake, given, mapped } from '../../tools/index.ts';

/**
 * All hosts' GPUs, cores and memory together; links are borrowed within a host only, as before. What a function takes
 * on the CPU is what it takes at the first host.
 */
export function pooledOptions(hosts: readonly [SimulatorOptions, ...SimulatorOptions[]]): SimulatorOptions {
  const [first] = hosts;
  const gpus: SchedulerGpu[] = [];
  const cores: LogicalCore[] = [];
  const cpu = { cores: 0, memoryBytes: 0 };
  const host = { capacityBytes: 0, diskGBps: 0 };
  const places = hosts.map((options) => {
    const place = { options, firstGpu: gpus.length };
    const firstSwitch = Math.max(-1, ...gpus.map((gpu) => gpu.switch)) + 1;
    for (const gpu of options.gpus) gpus.push({ ...gpu, switch: firstSwitch + gpu.switch });
    const firstSocket = Math.max(-1, ...cores.map(({ socket }) => socket)) + 1;
    for (const { socket } of options.cores ?? [])
      cores.push({ id: cores.length, core: cores.length, socket: firstSocket + socket });
    cpu.cores += options.cpu?.cores ?? 0;
    cpu.memoryBytes += options.cpu?.memoryBytes ?? 0;
    host.capacityBytes += options.host?.capacityBytes ?? 0;
    host.diskGBps += options.host?.diskGBps ?? 0;
    return place;
  });
  // Functions of one model share its offers, and must go on sharing them.
  const pooled = new WeakMap<OfferSheet['gpus'], OfferSheet['gpus']>();
  return {
    ...first,
    gpus,
    cores,
    cpu: first.cpu && cpu,
    host: host.capacityBytes > 0 ? { ...host, ...given({ filledWith: first.host?.filledWith }) } : undefined,
    sheetOf: (functionIndex, name) => {
      const sheet = first.sheetOf(functionIndex, name);
      const offers = getOrMake(pooled, sheet.gpus, () =>
        places.flatMap(({ options, firstGpu }) => {
          const own = options === first ? sheet : options.sheetOf(functionIndex, name);
          return own.gpus.map((offer) => offer && movedOffer(offer, firstGpu));
        }),
      );
      return { ...sheet, gpus: offers };
    },
  };
}

/** The same offer for a host whose first GPU has this number. */
function movedOffer(offer: GpuOffer, firstGpu: number): GpuOffer {
  return {
    ...offer,
    ways: mapped(offer.ways, (way) => ({
      ...way,
      transfers: mapped(way.transfers, (transfer) => ({ ...transfer, link: transfer.link + firstGpu })),
    })),
    ...(offer.smaller && { smaller: movedOffer(offer.smaller, firstGpu) }),
  };
}
