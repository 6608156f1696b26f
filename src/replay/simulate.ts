import type { Machine } from '../hardware/index.ts';
import type { ColdStartMode } from '../plan/index.ts';
import { estimateLayers, namedModel, type LayerProfile } from '../profile/index.ts';
import {
  gpuOffers,
  schedulerGpus,
  type CpuOffer,
  type GpuOffer,
  type OfferSheet,
  type Policy,
} from '../schedule/index.ts';
import { runSimulation, type GpuChange, type SimulatedRun } from './simulator.ts';
import type { ReplayObserver, Trace } from './types.ts';

export interface SimulationSettings {
  readonly machine: Machine;
  readonly policy: Policy;
  /** The sheet of a trace's function, asked for once; functions of one model should share its offers. */
  readonly sheetOf: (functionIndex: number, name: string) => OfferSheet;
  /** Of each GPU's memory, instead of what the machine says. */
  readonly reserveBytes?: number;
  /** So many invocations first that nobody is told of. */
  readonly warmupInvocations?: number;
  readonly gpuChanges?: readonly GpuChange[];
}

/**
 * Replays a trace on a virtual clock and tells the observer how it went. Throws RangeError for a trace whose invocations
 * are not in order of arrival.
 */
export async function simulate(
  trace: Trace,
  settings: SimulationSettings,
  observer: ReplayObserver,
): Promise<SimulatedRun> {
  const { machine, reserveBytes, policy, sheetOf, warmupInvocations, gpuChanges } = settings;
  return await runSimulation(trace, {
    gpus: schedulerGpus(machine, reserveBytes === undefined ? {} : { reserveBytes }),
    cpuCores: machine.sockets.reduce((sum, { cores }) => sum + cores, 0),
    policy,
    sheetOf,
    observer,
    warmupInvocations: warmupInvocations ?? 0,
    gpuChanges: gpuChanges ?? [],
  });
}

export interface FunctionSettings {
  readonly sloMs: number;
  readonly priority?: number;
  readonly pinned?: boolean;
  readonly cpu?: CpuOffer;
}

/** What models cost on a machine under one mode of cold start: made once, and shared by all functions of a model. */
export class OfferBook {
  readonly #machine: Machine;
  readonly #mode: ColdStartMode;
  readonly #profiles: ReadonlyMap<string, LayerProfile>;
  readonly #offers = new Map<string, readonly GpuOffer[]>();

  /** @param profiles of models that are not to be estimated by name. */
  constructor(machine: Machine, mode: ColdStartMode, profiles: ReadonlyMap<string, LayerProfile> = new Map()) {
    this.#machine = machine;
    this.#mode = mode;
    this.#profiles = profiles;
  }

  /** By GPU. Throws ProfileError for a name that is no model. */
  offers(model: string): readonly GpuOffer[] {
    let offers = this.#offers.get(model);
    if (offers === undefined) {
      const profile = this.#profiles.get(model) ?? estimateByName(model, this.#machine);
      offers = gpuOffers(profile, this.#machine, this.#mode);
      this.#offers.set(model, offers);
    }
    return offers;
  }

  /** Throws ProfileError for a name that is no model. */
  sheet(model: string, { sloMs, priority = 0, pinned = false, cpu }: FunctionSettings): OfferSheet {
    return { gpus: this.offers(model), cpu: cpu ?? null, sloMs, priority, pinned };
  }
}

function estimateByName(name: string, machine: Machine): LayerProfile {
  // On a machine without GPUs there are no layers to load, and nobody will ask.
  if (machine.gpus.length === 0) return { unit: 'ms', layers: [] };
  const { model, dimensions } = namedModel(name);
  return estimateLayers(model, machine, { dimensions }).profile;
}
