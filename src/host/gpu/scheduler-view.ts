/**
 * The live scheduler's settings, as JSON: with it, the simulator can use the same GPUs, policy and offers. Reading is
 * never a use.
 */
import type { CpuOffer, HostWait, OfferSheet, Policy, PolicyName } from '../../schedule/index.ts';
import { policyOf, type HostConfig } from '../config/config.ts';
import { toSchedulerPriority, type GpuResident, type LiveScheduler } from '../../live/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import type { GpuHost } from './gpu-host.ts';

/** A function's layers on a GPU: how many of the layers that its plan loads, counted from the first. */
export type ResidentAnswer = Omit<GpuResident, 'variant' | 'shared'> & { readonly gpu: number };

/** A function as the scheduler knows it. */
export interface ScheduledAnswer {
  readonly name: string;
  readonly version: string;
  /** Its number with the scheduler; null if only its CPU pool serves it. */
  readonly index: number | null;
  readonly residents: readonly ResidentAnswer[];
  /** What it waits for, where something needs its weights in host memory. */
  readonly hostWait: HostWait;
  /** Since its latest invocation; null before the first. */
  readonly idleMs: number | null;
}

/** `GET /api/scheduler` */
export type SchedulerAnswer = ReturnType<SchedulerView['whole']>;

/** `GET /api/scheduler/{name}` */
export interface SheetAnswer extends ScheduledAnswer {
  /** If the scheduler does not have the function, its offer sheet names no GPU. */
  readonly sheet: OfferSheet;
}

export interface SchedulerViewOptions {
  readonly live: LiveScheduler;
  readonly gpus: GpuHost | undefined;
  readonly registry: Registry;
  readonly config: Pick<HostConfig, 'gpu' | 'cpu' | 'admission'>;
  readonly cpuOffer: (key: string) => CpuOffer | null;
}

export class SchedulerView {
  readonly #options: SchedulerViewOptions;

  constructor(options: SchedulerViewOptions) {
    this.#options = options;
  }

  whole() {
    const { gpus, registry, config } = this.#options;
    const { mode, policy } = config.gpu;
    const devices = gpus?.info?.devices ?? [];
    return {
      /** `none`: this host drives no GPU. */
      status: gpus?.status ?? 'none',
      /** Why the GPUs are not up, if they are not. */
      reason: gpus === undefined ? 'this host drives no GPU' : (gpus.reason ?? null),
      /** The GPUs are a test double on the CPU: times measured on this host mean nothing. */
      isEmulated: gpus?.info?.isEmulated ?? false,
      mode,
      policy: policyAnswer(policy, policyOf(config)),
      cpuCores: config.cpu.cores,
      gpus: (gpus?.live.gpus ?? []).map(({ capacityBytes, switch: pciSwitch, linkGBps, uplinkGBps }, gpu) => {
        const { name = '', uuid = '' } = devices[gpu] ?? {};
        return { gpu, name, uuid, capacityBytes, switch: pciSwitch, linkGBps, uplinkGBps };
      }),
      functions: registry.names().flatMap((name) => {
        const version = registry.find(name);
        return version === undefined ? [] : [this.#scheduled(version)];
      }),
    };
  }

  /** With the SLO of the function's settings. */
  sheet(version: FunctionVersion): SheetAnswer {
    const { gpus, live, cpuOffer } = this.#options;
    const { sloMs, priority, pinned } = version.settings;
    const nowhere = (gpus?.live.gpus ?? []).map(() => null);
    const sheet = live.sheetOf(version.key) ?? {
      gpus: nowhere,
      cpu: cpuOffer(version.key),
      sloMs,
      priority: toSchedulerPriority(priority),
      pinned,
    };
    return { ...this.#scheduled(version), sheet };
  }

  #scheduled({ name, version, key }: FunctionVersion): ScheduledAnswer {
    const { gpus, live } = this.#options;
    const place = live.placeOf(key);
    const residents = (gpus?.live.gpus ?? []).flatMap((_, gpu): ResidentAnswer[] => {
      const { prefix, whole, bytes } = live.resident(key, gpu);
      return prefix === 0 ? [] : [{ gpu, prefix, whole, bytes }];
    });
    const index = place?.isPlanned === true ? place.index : null;
    return { name, version, index, residents, hostWait: live.hostWait(key), idleMs: place?.idleMs ?? null };
  }
}

const bounded = (value: number): number | null => (Number.isFinite(value) ? value : null);

/** JSON has no infinity: null means no bound. */
function policyAnswer(name: PolicyName, { waitBoundMs, ...policy }: Policy) {
  return { name, ...policy, waitBoundMs: bounded(waitBoundMs) };
}
