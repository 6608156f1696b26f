/**
 * Model transmission planning: DeepPlan (Jeong et al., EuroSys 2023), section 4.3.3. Decides which GPUs lend their PCIe
 * links to a cold start, which layers each link carries, and how fast.
 */
import type { Machine, NvLink } from '../../hardware/index.ts';
import type { ProfileLayer } from '../../profile/index.ts';

/** Speed of weights over the PCIe link of one GPU during a cold start. */
export interface LinkSpeed {
  readonly msPerByte: number;
  /** Before each tensor. */
  readonly setupMs: number;
  /** Relative to the primary's link alone. */
  readonly slowdown: number;
  /** From this GPU to the primary; undefined for the primary itself. */
  readonly nvlink: { readonly msPerByte: number; readonly setupMs: number } | undefined;
}

const nvlinkBetween = ({ nvlinks }: Machine, a: number, b: number): NvLink | undefined =>
  nvlinks.find(({ gpus }) => (gpus[0] === a && gpus[1] === b) || (gpus[0] === b && gpus[1] === a));

/**
 * GPUs that can help the primary to load: on another PCIe switch, since GPUs of one switch share its uplink, and joined
 * to the primary by NVLink; one for each switch. Of a switch's GPUs, the one with the primary's place in its own switch
 * comes first, so that primaries side by side do not pick the same helper.
 */
export function secondaryGpus(machine: Machine, primary: number): number[] {
  const own = machine.gpus[primary];
  if (own === undefined) return [];
  const onSwitch = (index: number) => [...machine.gpus.keys()].filter((gpu) => machine.gpus[gpu]!.switch === index);
  const place = onSwitch(own.switch).indexOf(primary);
  const secondaries: number[] = [];
  for (const index of machine.switches.keys()) {
    if (index === own.switch) continue;
    const joined = onSwitch(index).filter((gpu) => nvlinkBetween(machine, primary, gpu) !== undefined);
    const all = onSwitch(index);
    const preferred = all[all.length === 0 ? 0 : place % all.length];
    const chosen = joined.find((gpu) => gpu === preferred) ?? joined[0];
    if (chosen !== undefined) secondaries.push(chosen);
  }
  return secondaries;
}

/** Why no GPU helps the primary to load: what {@link secondaryGpus} misses first. */
export function whyAlone({ gpus, nvlinks, switches }: Machine, primary: number): string {
  if (gpus.length === 1) return '1 link: one GPU';
  const own = gpus[primary]?.switch;
  if (switches.length === 1 || gpus.every(({ switch: index }) => index === own)) return '1 link: one PCIe switch';
  if (!nvlinks.some(({ gpus: joined }) => joined.includes(primary))) return '1 link: no NVLink found';
  return '1 link: no NVLink to another PCIe switch';
}

/** The speed of each link in use, by GPU. */
export function linkSpeeds(machine: Machine, primary: number, secondaries: readonly number[]): Map<number, LinkSpeed> {
  const taking = [primary, ...secondaries];
  const share = taking.length > 1 ? (machine.costs?.parallelLinkShare ?? 1) : 1;
  const speeds = new Map<number, LinkSpeed>();
  let primaryGBps: number | undefined;
  for (const gpu of taking) {
    const { linkGBps, copySetupUs, switch: index } = machine.gpus[gpu]!;
    const sharing = taking.filter((other) => machine.gpus[other]!.switch === index).length;
    const uplinkGBps = machine.switches[index]?.uplinkGBps ?? linkGBps;
    primaryGBps ??= Math.min(linkGBps, uplinkGBps);
    const reachedGBps = Math.min(linkGBps * share, uplinkGBps / sharing);
    const nvlink = gpu === primary ? undefined : nvlinkBetween(machine, primary, gpu);
    speeds.set(gpu, {
      msPerByte: 1 / (reachedGBps * 1e6),
      setupMs: copySetupUs / 1000,
      slowdown: primaryGBps / reachedGBps,
      nvlink: nvlink && { msPerByte: 1 / (nvlink.linkGBps * 1e6), setupMs: nvlink.copySetupUs / 1000 },
    });
  }
  return speeds;
}

/**
 * Cuts the loaded layers into consecutive partitions of equal bytes, as the authors' engine does: a partition ends
 * before the layer that would exceed its share, and the last one takes the rest. (The paper's "equally partition a
 * given model" would also count layers that are never loaded.)
 * @returns for each layer the partition that carries it; undefined if it is not loaded
 */
export function partitionByLoadedBytes(
  layers: readonly ProfileLayer[],
  isLoaded: (layer: number) => boolean,
  partitions: number,
): (number | undefined)[] {
  const loadedBytes = layers.reduce((sum, { bytes }, index) => sum + (isLoaded(index) ? bytes : 0), 0);
  const share = Math.floor(loadedBytes / partitions);
  let partition = 0;
  let filled = 0;
  return layers.map(({ bytes }, index) => {
    if (!isLoaded(index)) return undefined;
    while (partition < partitions - 1 && filled + bytes > share) {
      partition++;
      filled = 0;
    }
    filled += bytes;
    return partition;
  });
}
