import { describeModel } from '../onnx/index.ts';
import type { Machine } from '../hardware/index.ts';
import type { ColdStartMode } from '../plan/index.ts';
import { estimateLayers, linkBytes, namedModel, type LayerProfile, type WeightBits } from '../profile/index.ts';
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
  type SideOffer,
} from '../schedule/index.ts';

export interface FunctionSettings {
  readonly sloMs: number;
  /** The higher goes first, as in an offer sheet; 0 where nothing is said. */
  readonly priority?: number | undefined;
  readonly cpu?: CpuOffer;
  readonly workers?: SideOffer;
}

/** What holds for all models of a replay. */
export interface ModelSettings {
  /** Profiles of models that are not to be estimated by name. */
  readonly profiles?: ReadonlyMap<string, LayerProfile>;
  /** Most calls of an estimated model that share a run; left out: 1. */
  readonly batchMax?: number | undefined;
  /** In how many bits the weights of estimated models are held and moved. */
  readonly weightBits?: WeightBits;
  /** Whether they are coded without loss on their way. */
  readonly coding?: boolean | undefined;
  /**
   * Functions of a model are versions of it that share their first layers: of what a GPU loads of each, and of what it
   * executes from host memory, this share of the bytes, in whole layers. 1: they are twins. Left out: they share nothing.
   */
  readonly sharedShare?: number | undefined;
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
  readonly #coding: boolean;
  readonly #sharedShare: number;

  constructor(machine: Machine, mode: ColdStartMode, models: ModelSettings = {}) {
    const { profiles = new Map(), batchMax = 1, weightBits = 32, coding = false, sharedShare = 0 } = models;
    this.#machine = machine;
    this.#mode = mode;
    this.#profiles = profiles;
    this.#batchMax = batchMax;
    this.#weightBits = weightBits;
    this.#coding = coding;
    this.#sharedShare = sharedShare;
  }

  /** By GPU. Throws ProfileError for an unknown model. */
  offers(model: string): readonly GpuOffer[] {
    return this.#model(model).gpus;
  }

  /** Bytes of a model's weights in a session or on disk. Throws ProfileError for an unknown model. */
  weightBytes(model: string): number {
    return this.#model(model).weightBytes;
  }

  /** Bytes of a model's weights in pinned host memory. Throws ProfileError for an unknown model. */
  hostBytes(model: string): number {
    return this.#model(model).hostBlocks.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Throws ProfileError for an unknown model. */
  sheet(model: string, { sloMs, priority = 0, cpu, workers }: FunctionSettings): OfferSheet {
    const { gpus, hostBlocks } = this.#model(model);
    const places = { cpu: cpu ?? null, ...(workers && { others: { workers } }) };
    return { gpus, ...places, hostBlocks, sloMs, priority, pinned: false };
  }

  #model(name: string): ModelOffers {
    return getOrMake(this.#models, name, () => this.#make(name));
  }

  #make(name: string): ModelOffers {
    const given = this.#profiles.get(name);
    if (given !== undefined) return this.#offersOf(name, given, []);
    const { model, dimensions } = namedModel(name);
    const [weightBits, coding] = [this.#weightBits, this.#coding];
    // Without GPUs there are no layers to load.
    if (this.#machine.gpus.length === 0) {
      const { weightBytes } = describeModel(model);
      return { gpus: [], weightBytes, hostBlocks: [{ bytes: weightBytes }] };
    }
    const profileOf = (batch: number): LayerProfile =>
      estimateLayers(model, this.#machine, { dimensions: { ...dimensions, batch }, weightBits, coding }).profile;
    const profile = profileOf(1);
    const aloneMs = executionMs(profile);
    const sizes = batchSizes(this.#batchMax).map((rows) => ({ rows, share: executionMs(profileOf(rows)) / aloneMs }));
    return this.#offersOf(name, profile, sizes);
  }

  /** @param sizes of joined runs, with their time relative to a single run */
  #offersOf(model: string, profile: LayerProfile, sizes: readonly BatchShare[]): ModelOffers {
    const share = this.#sharedShare;
    const gpus = gpuOffers(profile, this.#machine, this.#mode)
      .map((offer) => (sizes.length === 0 ? offer : withBatches(offer, sizes)))
      .map((offer) => sharing(offer, model, share));
    const weightBytes = profile.layers.reduce((sum, { bytes }) => sum + bytes, 0);
    const hostBytes = profile.layers.reduce((sum, layer) => sum + linkBytes(layer), 0);
    return { gpus, weightBytes, hostBlocks: hostBlocks(model, gpus, hostBytes, share) };
  }
}

const executionMs = ({ layers }: LayerProfile): number => layers.reduce((sum, { exec }) => sum + exec, 0);

/** Of what a GPU loads that has such a prefix; what some GPU never loads is executed from host memory. */
const hostBytesOfLoaded = ({ ways }: GpuOffer, prefix: number): number =>
  ways[ways.length - 1]!.transfers.reduce((sum, { bytes }) => sum + bytes[prefix]!, 0);

/** The offer of a function that shares the layers which lie within this share of the bytes, with others of its model. */
function sharing(offer: GpuOffer, model: string, share: number): GpuOffer {
  const { prefixBytes } = offer;
  const sharedBytes = share * wholeBytes(offer);
  const layers = prefixBytes.findLastIndex((bytes) => bytes <= sharedBytes);
  // Not by spread, as in offer-of-plan.ts.
  return share === 0 || layers < 1 ? offer : Object.assign({}, offer, { shared: { base: model, layers } });
}

function hostBlocks(model: string, gpus: readonly GpuOffer[], hostBytes: number, share: number): HostBlock[] {
  const loadedBytes = Math.min(...gpus.map((offer) => hostBytesOfLoaded(offer, 0)));
  const ownBytes = Math.min(...gpus.map((offer) => hostBytesOfLoaded(offer, offer.shared?.layers ?? 0)));
  const sharedBytes = loadedBytes - ownBytes;
  const executedBytes = hostBytes - loadedBytes;
  const sharedExecutedBytes = share * executedBytes;
  const blocks: HostBlock[] = [
    { id: `${model} loaded`, bytes: sharedBytes },
    { id: `${model} executed`, bytes: sharedExecutedBytes, isExecuted: true },
    { bytes: loadedBytes - sharedBytes },
    { bytes: executedBytes - sharedExecutedBytes, isExecuted: true },
  ];
  return blocks.filter(({ bytes }) => bytes > 0);
}
