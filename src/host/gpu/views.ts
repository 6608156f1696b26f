/** The GPUs for the dashboard and `/metrics`. Reading is never a use. */
import { modeText, wholePlan } from '../../plan/index.ts';
import type { GpuMemory, Resident, ViewSources } from '../dashboard/index.ts';
import type { OfferSheet } from '../../schedule/index.ts';
import type { GpuResident } from '../../live/index.ts';
import type { Statistics } from '../records/statistics.ts';
import { formatBytes } from '../../tools/index.ts';
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

/** The first few of the functions that share layers. */
export function namesText(keys: readonly string[]): string {
  const [more, shown] = [keys.length - 3, keys.slice(0, 3).join(', ')];
  return more > 0 ? `${shown} and ${more} more` : shown;
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
  /** Layers that functions share are counted with the first of them. */
  const onGpu = (gpu: number): Resident[] => {
    const counted = new Set<string>();
    return residents((key) => {
      const resident = live.resident(key, gpu);
      const found = residence(resident, live.sheetOf(key), gpu, live.isLoading(key, gpu));
      const { shared } = resident;
      if (shared === undefined || shared.keys.length === 0) return found;
      const isCounted = counted.has(shared.base);
      counted.add(shared.base);
      const bytes = isCounted ? found.bytes - shared.bytes : found.bytes;
      const words = `${formatBytes(shared.bytes)} ${isCounted ? 'more are' : 'of it are'} shared with ${namesText(shared.keys)}`;
      return { ...found, bytes, why: `${found.why}; ${words}` };
    });
  };
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
      return { state, bytes, loading, gpus: on, coldCause, pinnedBytes: pinned(gpus, key).filledBytes, plan };
    },
    refresh: async () => void (await gpus.freshState()),
    memory: () =>
      (gpus.info?.devices ?? []).map(({ index, name, uuid, limitBytes }): GpuMemory => ({
        index,
        name,
        uuid,
        capacityBytes: limitBytes,
        residents: onGpu(index),
      })),
    coldStarts: () => gpus.coldStarts(),
    hostTier: () =>
      residents((key) => {
        const why = 'GPUs load from there, and read some layers from there directly';
        const { filledBytes, sharedBytes } = pinned(gpus, key);
        // Layers that functions share are counted with the first of them.
        const words = sharedBytes === 0 ? why : `${why}; it shares ${formatBytes(sharedBytes)} more with others`;
        return { bytes: filledBytes - sharedBytes, state: 'pinned host memory', why: words };
      }),
  };
}

function pinned({ lastState }: GpuHost, key: string): { readonly filledBytes: number; readonly sharedBytes: number } {
  const found = lastState?.host.functions.find((each) => each.key === key);
  return { filledBytes: found?.host.filledBytes ?? 0, sharedBytes: found?.sharedBytes ?? 0 };
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
  const shared = devices.flatMap((gpu) => live.resident(key, gpu).shared ?? []).find(({ keys }) => keys.length > 0);
  const usual = [
    plan,
    ...(precision === undefined ? [] : [precision]),
    ...(shared === undefined
      ? []
      : [
          `${formatBytes(shared.bytes)} shared with ${shared.keys.length === 1 ? 'another' : `${shared.keys.length} others`}`,
        ]),
  ].join(', ');
  return estimated === undefined ? usual : `${usual} (planned from ${estimated})`;
}
