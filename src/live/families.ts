/**
 * Which functions share their first layers: those that have the same bytes there, and whose plans load the same layers of
 * them and execute the same ones from host memory. A function shares with one family of functions on a GPU. What the family
 * shares is the longest beginning of two of them, or a shorter one where that saves more as others join.
 */
import { createHash } from 'node:crypto';
import { getOrMake } from '../tools/index.ts';

/** A layer with weights, in a function's plan for a GPU. */
export interface PlannedLayer {
  readonly index: number;
  readonly id: string;
  readonly bytes: number;
  /** Else it is executed from host memory. */
  readonly isLoaded: boolean;
}

/** What functions share by their plans for a GPU. */
export interface SharedLayers {
  readonly base: string;
  readonly layers: readonly PlannedLayer[];
  /** On the GPU: the indices of those that are loaded. */
  readonly loaded: readonly number[];
}

class Family<Fn> {
  readonly members = new Map<Fn, readonly PlannedLayer[]>();
  shared: SharedLayers | undefined;

  /** Of a member, if it has all of the layers. */
  of(fn: Fn): SharedLayers | undefined {
    const { shared } = this;
    const own = this.members.get(fn);
    return shared !== undefined && own !== undefined && common(own, shared.layers) === shared.layers.length
      ? shared
      : undefined;
  }

  /** How many members share so many layers, as the layers of one of them name them. */
  #savedBytes(layers: readonly PlannedLayer[]): number {
    let count = 0;
    for (const own of this.members.values()) if (common(own, layers) === layers.length) count++;
    return (count - 1) * layers.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** A member has come: it may share what the others do, or they less of it so that it can. */
  joined(fn: Fn): void {
    const own = this.members.get(fn)!;
    if (this.of(fn) !== undefined) return;
    let most = this.shared === undefined ? 0 : this.#savedBytes(this.shared.layers);
    const lengths = new Set<number>();
    for (const [other, layers] of this.members) if (other !== fn) lengths.add(common(own, layers));
    for (const length of lengths) {
      const layers = own.slice(0, length);
      const savedBytes = this.#savedBytes(layers);
      if (length === 0 || savedBytes <= most) continue;
      most = savedBytes;
      const loaded = layers.flatMap(({ index, isLoaded }) => (isLoaded ? [index] : []));
      this.shared = { base: nameOf(layers), layers, loaded };
    }
  }
}

/** How many layers two functions have in common, from the first on. */
function common(a: readonly PlannedLayer[], b: readonly PlannedLayer[]): number {
  const most = Math.min(a.length, b.length);
  let count = 0;
  while (count < most && a[count]!.id === b[count]!.id && a[count]!.isLoaded === b[count]!.isLoaded) count++;
  return count;
}

/** By what they are: the same again after a restart. */
const nameOf = (layers: readonly PlannedLayer[]): string =>
  createHash('sha256')
    .update(layers.map(({ id, isLoaded }) => `${id} ${isLoaded}`).join())
    .digest('hex')
    .slice(0, 16);

export class Families<Fn> {
  /** By GPU and first layer. */
  readonly #families = new Map<string, Family<Fn>>();
  readonly #of = new Map<Fn, (Family<Fn> | undefined)[]>();

  /**
   * A function has these plans from now on; undefined: it shares nothing on that GPU. Returns the other functions that
   * share other layers now.
   */
  set(fn: Fn, planned: readonly (readonly PlannedLayer[] | undefined)[]): Fn[] {
    const before = this.#of.get(fn) ?? [];
    const changed = new Set<Fn>();
    const now = planned.map((layers, gpu) => {
      const first = layers?.[0];
      const family = first && getOrMake(this.#families, `${gpu} ${first.id}`, () => new Family<Fn>());
      if (before[gpu] !== family) this.#leave(fn, before[gpu]);
      if (family === undefined) return undefined;
      const { shared } = family;
      family.members.set(fn, layers!);
      family.joined(fn);
      if (family.shared !== shared) for (const member of family.members.keys()) changed.add(member);
      return family;
    });
    for (const family of before.slice(planned.length)) this.#leave(fn, family);
    if (now.some((family) => family !== undefined)) this.#of.set(fn, now);
    else this.#of.delete(fn);
    changed.delete(fn);
    return [...changed];
  }

  /** What the others share stays as it is. */
  #leave(fn: Fn, family: Family<Fn> | undefined): void {
    family?.members.delete(fn);
    if (family?.members.size === 0)
      for (const [key, each] of this.#families) if (each === family) this.#families.delete(key);
  }

  /** What a function shares on a GPU. */
  on(fn: Fn, gpu: number): SharedLayers | undefined {
    return this.#of.get(fn)?.[gpu]?.of(fn);
  }

  /** Those that share the same layers with it on a GPU. */
  with(fn: Fn, gpu: number): Fn[] {
    const family = this.#of.get(fn)?.[gpu];
    if (family?.of(fn) === undefined) return [];
    return [...family.members.keys()].filter((other) => other !== fn && family.of(other) !== undefined);
  }
}
