/** Offers as the planners and an analytic or measured profile give them. */
import { mapped } from '../tools/index.ts';
import type { Given, GpuId } from './ids.ts';
import type { Machine } from '../hardware/index.ts';
import {
  linkSpeeds,
  ownLinkMode,
  planColdStart,
  residencyFrom,
  secondaryGpus,
  withPrefix,
  type ColdStartMode,
  type ColdStartPlan,
  type LayerMethod,
} from '../plan/index.ts';
import { linkBytes, type LayerProfile } from '../profile/index.ts';
import { getOrMake } from '../tools/index.ts';
import type { GpuOffer, LinkTransfer, LoadOption } from './offer.ts';
import type { SchedulerGpu } from './types.ts';

/**
 * What a plan of this mode costs on each GPU of a machine. Times are of one start alone; starts that share links are
 * predicted from the load options' transfers. GPUs with links of the same speeds have the same offer, over other links.
 *
 * @param given methods of the layers, instead of those of the mode's own planner
 */
export function gpuOffers(
  profile: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  mode: ColdStartMode,
  given?: readonly LayerMethod[],
): readonly GpuOffer[] {
  const planned = new Map<string, { readonly links: readonly number[]; readonly offer: GpuOffer }>();
  return machine.gpus.map((_, gpu) => {
    const others = secondaryGpus(machine, gpu);
    const links = [gpu, ...others];
    // Of a machine's GPUs a plan knows nothing else: the primary's speed alone follows from its slowdown.
    const speeds = [...linkSpeeds(machine, gpu, others).values()];
    const like = getOrMake(planned, JSON.stringify(speeds), () => ({
      links,
      offer: offerOf(profile, machine, mode, gpu, given),
    }));
    return like.links === links ? like.offer : overLinks(like.offer, (link) => links[like.links.indexOf(link)]!);
  });
}

function offerOf(
  profile: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  mode: ColdStartMode,
  gpu: Given<GpuId>,
  given: readonly LayerMethod[] | undefined,
): GpuOffer {
  const plan = planColdStart(profile, machine, mode, {
    primary: gpu,
    ...(given === undefined ? {} : { methods: given }),
  });
  const fastest = loadOption(profile, machine, plan);
  const { warmMs, curve, hidden } = residencyFrom(profile, plan, fastest.coldMs);
  const ways: [LoadOption, ...LoadOption[]] = [fastest];
  if (plan.secondaries.length > 0) {
    const methods = plan.layers.map(({ method }) => method);
    ways.push(
      loadOption(profile, machine, planColdStart(profile, machine, ownLinkMode[mode], { primary: gpu, methods })),
    );
  }
  return { warmMs, prefixBytes: curve.map(({ bytes }) => bytes), overlapPrefix: hidden.layers, ways };
}

/**
 * Field by field: copies by spread have a hidden class each, and V8 reads the fields of more than four classes slowly. With
 * 100 GPUs that was a fourth of a replay.
 */
function overLinks(
  { warmMs, prefixBytes, overlapPrefix, ways }: GpuOffer,
  linkOf: (link: Given<GpuId>) => number,
): GpuOffer {
  const over = ({ link, bytes, ms, tailMs }: LinkTransfer): LinkTransfer => ({ link: linkOf(link), bytes, ms, tailMs });
  const renamed = ({ mode, coldMs, transfers }: LoadOption): LoadOption => ({
    mode,
    coldMs,
    transfers: mapped(transfers, over),
  });
  return { warmMs, prefixBytes, overlapPrefix, ways: mapped(ways, renamed) };
}

function loadOption(profile: Pick<LayerProfile, 'layers'>, machine: Machine, plan: ColdStartPlan): LoadOption {
  const links = [plan.primary, ...plan.secondaries];
  const coldMs: number[] = [];
  const transfers = links.map((link) => ({ link, bytes: [] as number[], ms: [] as number[], tailMs: [] as number[] }));
  const loaded = plan.layers.reduce((count, { method }) => count + (method === 'load' ? 1 : 0), 0);
  for (let prefix = 0; prefix <= loaded; prefix++) {
    const { layers, latencyMs } = withPrefix(profile, machine, plan, prefix);
    // Layers that are kept need not be used.
    coldMs.push(Math.min(latencyMs, coldMs.at(-1) ?? Infinity));
    for (const transfer of transfers) {
      let bytes = 0;
      let ms = 0;
      let tailMs = 0;
      // Of the last layer that the link brings.
      let decodeMs = 0;
      for (const [index, { link, copy, decode, execution }] of layers.entries()) {
        const durationMs = execution.endMs - execution.startMs;
        if (copy !== undefined && link === transfer.link) {
          bytes += linkBytes(profile.layers[index]!);
          ms += copy.endMs - copy.startMs;
          decodeMs = decode === undefined ? 0 : decode.endMs - decode.startMs;
          tailMs = decodeMs;
        }
        tailMs += durationMs;
      }
      transfer.bytes.push(bytes);
      transfer.ms.push(ms);
      // The baseline executes nothing before everything has arrived.
      if (plan.mode === 'baseline')
        tailMs = layers.reduce((sum, { execution: { startMs, endMs } }) => sum + endMs - startMs, decodeMs);
      transfer.tailMs.push(bytes === 0 ? 0 : tailMs);
    }
  }
  const [own, ...others] = transfers;
  const lent = others.filter(({ bytes }) => bytes.some((count) => count > 0));
  return { mode: plan.instead?.mode ?? plan.mode, coldMs, transfers: [own!, ...lent] };
}

/**
 * Activations of the one running invocation, beside the reserve. With it the GPUs of p3.8xlarge hold 25 BERT-Base as
 * PipeSwitch loads it and 31 as DeepPlan does: the 100 and 124 of four GPUs that the DeepPlan paper reports (5.3.1).
 */
const activationBytes = 83 * 2 ** 20;

/**
 * A machine's GPUs for the scheduler.
 *
 * @param reserveBytes for each GPU, instead of the machine's own value
 */
export function schedulerGpus(machine: Machine, reserveBytes?: number): SchedulerGpu[] {
  const hostGBps = (machine.hostMemory?.bandwidthGBps ?? Infinity) / machine.switches.length;
  return machine.gpus.map((gpu) => {
    const keptBytes = (reserveBytes ?? gpu.reserveBytes) + activationBytes;
    return {
      capacityBytes: Math.max(0, gpu.memoryBytes - keptBytes),
      switch: gpu.switch,
      linkGBps: gpu.linkGBps,
      // Main memory serves all switches.
      uplinkGBps: Math.min(machine.switches[gpu.switch]!.uplinkGBps, hostGBps),
    };
  });
}
