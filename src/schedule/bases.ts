/** Layers that several functions share: which functions, and what each GPU has of them. */
import type { Numbered } from './heap.ts';
import { ServedFunction } from './function.ts';
import { named, type FunctionId } from './ids.ts';
import { wholePrefix, type GpuOffer } from './offer.ts';
import type { Policy } from './policy.ts';
import { Base, type Family } from './residents.ts';

/** No function has it. Sorted by number, a base is before all functions. */
const baseNumber = named<FunctionId>(-1);

class SharedLayers implements Family {
  readonly name: string;
  readonly fn: ServedFunction;
  readonly users = new Set<ServedFunction>();
  /** By GPU; made when they are asked for. */
  readonly on: (Base | undefined)[] = [];
  #latestUser: FunctionId;

  constructor(name: string, { number, sheet: { sloMs } }: ServedFunction, policy: Policy) {
    this.name = name;
    this.#latestUser = number;
    this.fn = new ServedFunction(baseNumber, { gpus: [], cpu: null, sloMs, priority: 0, pinned: false }, policy);
  }

  sharerOf(gpu: number, layers: number): FunctionId {
    for (const { number, sheet } of this.users) if ((sheet.gpus[gpu]?.shared?.layers ?? 0) > layers) return number;
    return this.#latestUser;
  }

  layersOn(gpu: number): number {
    let most = 0;
    for (const { sheet } of this.users) most = Math.max(most, sheet.gpus[gpu]?.shared?.layers ?? 0);
    return most;
  }

  add(user: ServedFunction): void {
    this.users.add(user);
    this.#latestUser = user.number;
    const { sheet } = this.fn;
    // The price of a miss is that of the user that is late first.
    if (user.sheet.sloMs < sheet.sloMs) this.fn.setSheet({ ...sheet, sloMs: user.sheet.sloMs });
  }

  delete(user: ServedFunction): void {
    this.users.delete(user);
    this.#latestUser = user.number;
  }
}

export class Bases {
  readonly #policy: Policy;
  readonly #families = new Map<string, SharedLayers>();
  /** Those that had no users when the last one left. */
  readonly #left = new Set<string>();
  /** The families of each function, by name: one on a GPU. */
  readonly #namesOf = new Map<ServedFunction, ReadonlySet<string>>();

  constructor(policy: Policy) {
    this.#policy = policy;
  }

  /** Forgets families without users, once nothing of them is on a GPU: until then a run or load may still use it. */
  #tidy(): void {
    for (const name of this.#left) {
      const family = this.#families.get(name)!;
      if (family.users.size === 0) {
        if (family.on.some((base) => base !== undefined && (base.prefix > 0 || base.active.size > 0))) continue;
        this.#families.delete(name);
      }
      this.#left.delete(name);
    }
  }

  /** Brings up to date what a function shares. Returns the bases that it shared until now and does no longer. */
  changed(fn: ServedFunction): Base[] {
    this.#tidy();
    const names = new Set<string>();
    let isTwin = !fn.isRemoved;
    let first: SharedLayers | undefined;
    for (const offer of fn.isRemoved ? [] : fn.sheet.gpus) {
      if (offer === null) continue;
      if (offer.shared === undefined || offer.shared.layers < wholePrefix(offer)) isTwin = false;
      if (offer.shared === undefined) continue;
      names.add(offer.shared.base);
      const family = this.#family(offer.shared.base, fn);
      family.add(fn);
      first ??= family;
    }
    // Its layers are whole on a GPU where the base is.
    fn.twinOf = isTwin ? first?.fn : undefined;
    const before = this.#namesOf.get(fn);
    if (names.size > 0) this.#namesOf.set(fn, names);
    else if (before === undefined) return [];
    else this.#namesOf.delete(fn);
    const left: Base[] = [];
    for (const name of before ?? []) {
      if (names.has(name)) continue;
      const family = this.#families.get(name)!;
      family.delete(fn);
      left.push(...family.on.filter((base) => base !== undefined));
      if (family.users.size === 0) this.#left.add(name);
    }
    return left;
  }

  #family(name: string, user: ServedFunction): SharedLayers {
    let family = this.#families.get(name);
    if (family === undefined) this.#families.set(name, (family = new SharedLayers(name, user, this.#policy)));
    return family;
  }

  /** What a GPU has of the layers that an offer of it shares. */
  at(offer: GpuOffer | null | undefined, { number }: Numbered): Base | undefined {
    const name = offer?.shared?.base;
    const family = name === undefined ? undefined : this.#families.get(name);
    if (family === undefined) return undefined;
    while (family.on.length <= number) family.on.push(undefined);
    return (family.on[number] ??= new Base(family, number));
  }

  /** Whether layers that a function shares are on a GPU. */
  isOnGpu(fn: ServedFunction): boolean {
    for (const name of this.#namesOf.get(fn) ?? [])
      if (this.#families.get(name)!.on.some((base) => base !== undefined && base.prefix > 0)) return true;
    return false;
  }
}
