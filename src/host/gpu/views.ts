/** The GPUs as the dashboard and `/metrics` show them. Reading is never a use. */
import type { GpuMemory, Resident, ViewSources } from '../dashboard/index.ts';
import type { Statistics } from '../statistics.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import type { GpuHost } from './gpu-host.ts';
import { wholePlan } from './ladder.ts';

/** The rungs under which a function is resident, its mode, and how often it was shrunk: 'hybrid-2 (interleave), shrunk 2 times'. */
export function ladderText(mode: string, rungs: readonly string[], shrinks: number): string {
  const resident = [...new Set(rungs)].join(' and ');
  const times = shrinks === 1 ? 'once' : `${shrinks} times`;
  return `${resident === '' ? mode : `${resident} (${mode})`}${shrinks === 0 ? '' : `, shrunk ${times}`}`;
}

export function gpuViews(gpus: GpuHost, registry: Registry, statistics: Statistics): NonNullable<ViewSources['gpus']> {
  const versionOf = (key: string): FunctionVersion | undefined => {
    const at = key.lastIndexOf('@');
    return registry.find(key.slice(0, at), key.slice(at + 1));
  };
  const pinnedBytes = (key: string): number => {
    const host = gpus.lastState?.host.functions.find((each) => each.key === key)?.host;
    return host?.tier === 'host' ? host.bytes : host?.tier === 'filling' ? host.filledBytes : 0;
  };
  const devices = (): readonly number[] => gpus.info?.devices.map(({ index }) => index) ?? [];
  return {
    presence: (key) => {
      const standing = gpus.standing(key);
      if (standing === undefined || gpus.status === 'unavailable') return undefined;
      switch (standing.status) {
        case 'waiting':
          return { bytes: 0, loading: false, pinnedBytes: 0, plan: 'waits to be planned for the GPUs' };
        case 'refused':
          return { bytes: 0, loading: false, pinnedBytes: 0, plan: `CPU pool: ${standing.reason}` };
        case 'planned': {
          const shell = gpus.shell;
          const bytes = devices().reduce((sum, gpu) => sum + (shell?.resident(key, gpu).bytes ?? 0), 0);
          const loading = devices().some((gpu) => shell?.isLoading(key, gpu) === true);
          const offers = (shell?.sheetOf(key)?.gpus ?? []).flatMap((offer) => offer ?? []);
          const isLadder = offers.some(({ smaller }) => smaller !== undefined);
          // One plan over GPU and CPU is named as well, wherever the function is: nothing else says that cores take part.
          const onlyPlans = offers.flatMap(({ plan }) => (plan === undefined || plan === wholePlan ? [] : [plan]));
          const resident = devices().flatMap((gpu) => shell?.resident(key, gpu).rung ?? []);
          const { shrinks = 0 } = shell?.planChanges(key) ?? {};
          const failing = gpus.failing.get(key);
          const { mode, estimated } = standing;
          const usual = ladderText(mode, isLadder ? resident : onlyPlans, isLadder ? shrinks : 0);
          const planned = estimated === undefined ? usual : `${usual} (planned from ${estimated})`;
          const plan = failing === undefined ? planned : `CPU pool for now: ${failing}`;
          return { bytes, loading, pinnedBytes: pinnedBytes(key), plan };
        }
      }
    },
    refresh: async () => void (await gpus.freshState()),
    memory: () =>
      (gpus.info?.devices ?? []).map((device): GpuMemory => ({
        index: device.index,
        name: device.name,
        uuid: device.uuid,
        capacityBytes: device.limitBytes,
        residents: [...(gpus.shell?.keys() ?? [])].flatMap((key): Resident[] => {
          const version = versionOf(key);
          const resident = gpus.shell?.resident(key, device.index);
          if (version === undefined || resident === undefined || resident.bytes === 0) return [];
          const isWhole = resident.prefix === resident.whole;
          const top = gpus.shell?.sheetOf(key)?.gpus[device.index];
          const isShrunk = top?.smaller !== undefined && resident.rung !== top.plan;
          const state = isWhole ? 'warm' : `partial ${Math.round((100 * resident.prefix) / resident.whole)}%`;
          return [
            {
              functionName: version.name,
              version: version.version,
              bytes: resident.bytes,
              state: gpus.shell?.isLoading(key, device.index) === true ? 'loading' : state,
              lastUseMs: statistics.find(key)?.lastInferenceAtMs ?? 0,
              why: gpus.shell?.sheetOf(key)?.pinned
                ? 'pinned'
                : isWhole
                  ? isShrunk
                    ? `used here, under its smaller plan '${resident.rung}': the rest of its room went to others`
                    : 'used here, and nothing needed its room since'
                  : 'its first layers were kept, which hide the loading of the rest',
            },
          ];
        }),
      })),
    coldStarts: () => gpus.coldStarts(),
    hostTier: () =>
      [...(gpus.shell?.keys() ?? [])].flatMap((key): Resident[] => {
        const version = versionOf(key);
        const bytes = pinnedBytes(key);
        if (version === undefined || bytes === 0) return [];
        return [
          {
            functionName: version.name,
            version: version.version,
            bytes,
            state: 'pinned host memory',
            lastUseMs: statistics.find(key)?.lastInferenceAtMs ?? 0,
            why: 'GPUs load from there, and read some layers from there directly',
          },
        ];
      }),
  };
}
