/** The GPUs for the dashboard and `/metrics`. Reading is never a use. */
import { modeText, wholePlan } from '../../plan/index.ts';
import type { GpuMemory, Resident, ViewSources } from '../dashboard/index.ts';
import type { OfferSheet } from '../../schedule/index.ts';
import type { GpuResident } from '../../live/index.ts';
import type { Statistics } from '../records/statistics.ts';
import type { Registry } from '../types.ts';
import { versionOf } from '../rollout/versions.ts';
import type { GpuHost } from './gpu-host.ts';

/**
 * Where a function is resident, how its weights are loaded, how often it was shrunk: 'hybrid-2 (pt+dha), shrunk once'.
 */
export function variantsText(mode: string, variants: readonly string[], shrinks: number): string {
  const resident = [...new Set(variants)].join(' and ');
  const times = shrinks === 1 ? 'once' : `${shrinks} times`;
  return `${resident === '' ? mode : `${resident} (${mode})`}${shrinks === 0 ? '' : `, shrunk ${times}`}`;
}

/** How much of a function is on a GPU, and why. */
function residence(
  { bytes, prefix, whole, variant }: GpuResident,
  sheet: OfferSheet | undefined,
  gpu: number,
  isLoading: boolean,
): Pick<Resident, 'bytes' | 'state' | 'why'> {
  const isWhole = prefix === whole;
  const top = sheet?.gpus[gpu];
  const isShrunk = top?.smaller !== undefined && variant !== top.plan;
  const shrunk = `used here, under its smaller plan '${variant}': the rest of its room went to others`;
  const used = isShrunk ? shrunk : 'used here, and nothing needed its room since';
  const partly = 'its first layers were kept, which hide the loading of the rest';
  return {
    bytes,
    state: isLoading ? 'loading' : isWhole ? 'warm' : `partial ${Math.round((100 * prefix) / whole)}%`,
    why: sheet?.pinned === true ? 'pinned' : isWhole ? used : partly,
  };
}

export function gpuViews(gpus: GpuHost, registry: Registry, statistics: Statistics): NonNullable<ViewSources['gpus']> {
  const { live } = gpus;
  const devices = (): readonly number[] => gpus.info?.devices.map(({ index }) => index) ?? [];
  /** For every function, its entry in `there`. */
  const residents = (there: (key: string) => Pick<Resident, 'bytes' | 'state' | 'why'>): Resident[] =>
    [...live.keys()].flatMap((key): Resident[] => {
      const version = versionOf(registry, key);
      const found = there(key);
      if (version === undefined || found.bytes === 0) return [];
      const lastUseMs = statistics.find(key)?.lastCallAtMs ?? 0;
      return [{ functionName: version.name, version: version.version, lastUseMs, ...found }];
    });
  return {
    process: () => gpus,
    waiting: () => live.waitingCount,
    busyShares: () => devices().map((gpu) => live.utilization(gpu)),
    linkBytes: () => gpus.lastState?.links ?? [],
    linkSpeed: (gpu) => {
      const found = live.gpus[gpu];
      return found && found.linkGBps * 1e9;
    },
    presence: (key) => {
      const record = gpus.record(key);
      if (record === undefined || gpus.status === 'unavailable') return undefined;
      const bytes = devices().reduce((sum, gpu) => sum + live.resident(key, gpu).bytes, 0);
      const loading = devices().some((gpu) => live.isLoading(key, gpu));
      const whyNot = gpus.whyNot(key);
      const { coldCause, estimated } = record;
      const plan = whyNot === undefined ? planText(gpus, devices(), key, estimated) : `CPU pool: ${whyNot.words}`;
      const on = devices().filter((gpu) => live.resident(key, gpu).prefix > 0);
      const state = { kind: record.state.kind, whyNot: whyNot?.words ?? null };
      return { state, bytes, loading, gpus: on, coldCause, pinnedBytes: pinnedBytes(gpus, key), plan };
    },
    refresh: async () => void (await gpus.freshState()),
    memory: () =>
      (gpus.info?.devices ?? []).map(({ index, name, uuid, limitBytes }): GpuMemory => ({
        index,
        name,
        uuid,
        capacityBytes: limitBytes,
        residents: residents((key) =>
          residence(live.resident(key, index), live.sheetOf(key), index, live.isLoading(key, index)),
        ),
      })),
    coldStarts: () => gpus.coldStarts(),
    hostTier: () =>
      residents((key) => ({
        bytes: pinnedBytes(gpus, key),
        state: 'pinned host memory',
        why: 'GPUs load from there, and read some layers from there directly',
      })),
  };
}

function pinnedBytes({ lastState }: GpuHost, key: string): number {
  return lastState?.host.functions.find((each) => each.key === key)?.host.filledBytes ?? 0;
}

function planText(gpus: GpuHost, devices: readonly number[], key: string, estimated?: string): string {
  const { live } = gpus;
  const offers = (live.sheetOf(key)?.gpus ?? []).flatMap((offer) => offer ?? []);
  const hasVariants = offers.some(({ smaller }) => smaller !== undefined);
  // A single plan over GPU and CPU is named too, wherever the function is: only the name shows that cores take part.
  const onlyPlans = offers.flatMap(({ plan: variant }) =>
    variant === undefined || variant === wholePlan ? [] : [variant],
  );
  const resident = devices.flatMap((gpu) => live.resident(key, gpu).variant ?? []);
  const { shrinks } = live.planChanges(key);
  const plans = live.plansOf(key);
  const modes = new Set(plans && devices.map((gpu) => modeText(plans.planOf(gpu, plans.mode))));
  const precision = gpus.precisionText(key);
  const plan = variantsText([...modes].join(' or '), hasVariants ? resident : onlyPlans, hasVariants ? shrinks : 0);
  const usual = precision === undefined ? plan : `${plan}, ${precision}`;
  return estimated === undefined ? usual : `${usual} (planned from ${estimated})`;
}
