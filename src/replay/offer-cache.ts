import { describeModel } from '../onnx/index.ts';
import type { Machine } from '../hardware/index.ts';
import type { ColdStartMode } from '../plan/index.ts';
import { estimateLayers, namedModel, type LayerProfile, type WeightBits } from '../profile/index.ts';
import { getOrMake } from '../tools/index.ts';
import {
  batchSizes,
  gpuOffers,
  wholeBytes,
  withBatches,
  type BatchShare,
  type CpuOffer,
  type GpuOffer,
  type HostBlock,
  type OfferSheet,
  type WorkersOffer,
} from '../schedule/index.ts';

export interface FunctionSettings {
  readonly sloMs: number;
  /** The higher goes first, as in an offer sheet; 0 where nothing is said. */
  readonly priority?: number | undefined;
  readonly cpu?: CpuOffer;
  readonly workers?: WorkersOffer;
}

/** Of all models of a replay. */
export interface ModelSettings {
  /** Of models that are not to be estimated by name. */
  readonly profiles?: ReadonlyMap<string, LayerProfile>;
  /** Most calls of an estimated model that share a run; left out: 1. */
  readonly batchMax?: number | undefined;
  /** In how many bits the weights of estimated models are held and moved. */
  readonly weightBits?: WeightBits;
}

/** What a model costs on a machine. */
interface ModelOffers {
  readonly gpus: readonly GpuOffer[];
  readonly weightBytes: number;
  readonly hostBlocks: readonly HostBlock[];
}

/** What models cost on a machine under one cold-start mode: computed once, and shared by all functions of a model. */
export class OfferCache {
  readonly #machine: Machine;
  readonly #mode: ColdStartMode;
  readonly #profiles: ReadonlyMap<string, LayerProfile>;
  readonly #models = new Map<string, ModelOffers>();
  readonly #batchMax: number;
  readonly #weightBits: WeightBits;

  constructor(machine: Machine, mode: ColdStartMode, models: ModelSettings = {}) {
    const { profiles = new Map(), batchMax = 1, weightBits = 32 } = models;
    this.#machine = machine;
    this.#mode = mode;
    this.#profiles = profiles;
    this.#batchMax = batchMax;
    this.#weightBits = weightBits;
  }

  /** By GPU. Throws ProfileError for an unknown model. */
  offers(model: string): readonly GpuOffer[] {
    return this.#model(model).gpus;
  }

  /** Of a model's weights, in host memory or on disk. Throws ProfileError for an unknown model. */
  weightBytes(model: string): number {
    return this.#model(model).weightBytes;
  }

  /** Throws ProfileError for an unknown model. */
  sheet(model: string, { sloMs, priority = 0, cpu, workers }: FunctionSettings): OfferSheet {
    const { gpus, hostBlocks } = this.#model(model);
    const places = { cpu: cpu ?? null, workers: workers ?? null };
    return { gpus, ...places, hostBlocks, sloMs, priority, pinned: false };
  }

  #model(name: string): ModelOffers {
    return getOrMake(this.#models, name, () => this.#make(name));
  }

  #make(name: string): ModelOffers {
    const given = this.#profiles.get(name);
    if (given !== undefined) return this.#offersOf(given, []);
    const { model, dimensions } = namedModel(name);
    const weightBits = this.#weightBits;
    // Without GPUs there are no layers to load.
    if (this.#machine.gpus.length === 0) {
      const { weightBytes } = describeModel(model);
      return { gpus: [], weightBytes, hostBlocks: [{ bytes: weightBytes }] };
    }
    const profileOf = (batch: number): LayerProfile =>
      estimateLayers(model, this.#machine, { dimensions: { ...dimensions, batch }, weightBits }).profile;
    const profile = profileOf(1);
    const aloneMs = executionMs(profile);
    const sizes = batchSizes(this.#batchMax).map((rows) => ({ rows, share: executionMs(profileOf(rows)) / aloneMs }));
    return this.#offersOf(profile, sizes);
  }

  /** @param sizes of joined runs, with their time relative to a single run */
  #offersOf(profile: LayerProfile, sizes: readonly BatchShare[]): ModelOffers {
    const gpus = gpuOffers(profile, this.#machine, this.#mode).map((offer) =>
      sizes.length === 0 ? offer : withBatches(offer, sizes),
    );
    const weightBytes = profile.layers.reduce((sum, { bytes }) => sum + bytes, 0);
    return { gpus, weightBytes, hostBlocks: hostBlocks(gpus, weightBytes) };
  }
}

const executionMs = ({ layers }: LayerProfile): number => layers.reduce((sum, { exec }) => sum + exec, 0);

/** What some GPU never loads is executed from host memory. */
function hostBlocks(gpus: readonly GpuOffer[], weightBytes: number): HostBlock[] {
  const loadedBytes = Math.min(...gpus.map(wholeBytes));
  const blocks = [{ bytes: loadedBytes }, { bytes: weightBytes - loadedBytes, isExecuted: true }];
  return blocks.filter(({ bytes }) => bytes > 0);
}
