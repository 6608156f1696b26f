/** Functions of different sizes: BERT-Base with its layers scaled, by a Pareto distribution that ends at a largest size. */
import { estimateLayers, namedModel, type LayerProfile } from '../../src/profile/index.ts';
import { gpuOffers } from '../../src/schedule/index.ts';
import { getOrMake } from '../../src/tools/index.ts';
import { p3 } from './machines.ts';

export interface Sizes {
  /** Of the distribution. */
  readonly exponent: number;
  readonly leastMB: number;
  readonly mostMB: number;
}

/** Functions by number; those of a size share a model, as functions of one architecture do. */
export interface SizedFunctions {
  readonly names: readonly string[];
  readonly mbOf: (functionIndex: number) => number;
  /** Of a start that finds nothing, over the GPU's own link. */
  readonly coldMsOf: (functionIndex: number) => number;
  readonly profiles: ReadonlyMap<string, LayerProfile>;
}

const modelCount = 50;

/** The same sizes whatever the seed: quantiles of the distribution, in no order. */
export function sizedFunctions(count: number, sizes: Sizes): SizedFunctions {
  const { model, dimensions } = namedModel('bert-base');
  const bert = estimateLayers(model, p3, { dimensions }).profile;
  const coldMs = new Map<number, number>();
  const models = Array.from({ length: Math.min(count, modelCount) }, (_, index) => {
    const mb = quantile((index + 0.5) / Math.min(count, modelCount), sizes);
    return { name: `bert-of-${mb.toFixed(0)}MB-${index}`, mb, profile: scaled(bert, mb) };
  });
  // A step that has no divisor in common with their number: neighbours have different sizes.
  const modelOf = (index: number): (typeof models)[number] => models[(index * 19) % models.length]!;
  return {
    names: Array.from({ length: count }, (_, index) => `${modelOf(index).name}/${Math.floor(index / models.length)}`),
    mbOf: (index) => modelOf(index).mb,
    coldMsOf: (index) => {
      const { mb, profile } = modelOf(index);
      return getOrMake(coldMs, mb, () => gpuOffers(profile, p3, 'interleave')[0]!.ways.at(-1)!.coldMs[0]!);
    },
    profiles: new Map(models.map(({ name, profile }) => [name, profile])),
  };
}

const quantile = (share: number, { exponent, leastMB, mostMB }: Sizes): number =>
  leastMB / (1 - share * (1 - (leastMB / mostMB) ** exponent)) ** (1 / exponent);

function scaled({ unit, layers }: LayerProfile, mb: number): LayerProfile {
  const times = (mb * 1e6) / layers.reduce((sum, { bytes }) => sum + bytes, 0);
  // Without the details of the estimate, which say what each kernel of the real model takes.
  return {
    unit,
    layers: layers.map(({ name, kind, bytes, load, exec, dha }) => ({
      name,
      kind,
      bytes: Math.round(bytes * times),
      load: load * times,
      exec: exec * times,
      dha: dha * times,
    })),
  };
}
