/**
 * A plan names each layer of its model, and a function runs under the same few plans again and again. So a run carries
 * its plan to the GPU process once, and later runs carry the plan's place among those of the function.
 */
import type { ColdStartPlan } from '../../plan/index.ts';
import { getOrMake } from '../../tools/index.ts';

/** A function has one for each GPU, mode and variant; one that is not used any more makes room. */
const placesMax = 64;

/** A plan as runs carry it; `plan` is left out where the process has it at this place. */
export interface PlacedPlan {
  readonly place: number;
  readonly plan?: ColdStartPlan;
}

/** The host's side. */
export class SentPlans {
  /** By function: the places of its plans, the first one to be replaced first. */
  readonly #places = new Map<string, Map<ColdStartPlan, number>>();

  /** For a run that is sent next. */
  place(key: string, plan: ColdStartPlan): PlacedPlan {
    const places = getOrMake(this.#places, key, () => new Map<ColdStartPlan, number>());
    const known = places.get(plan);
    if (known !== undefined) return { place: known };
    let place = places.size;
    if (place === placesMax) {
      const [oldest, its] = places.entries().next().value!;
      places.delete(oldest);
      place = its;
    }
    places.set(plan, place);
    return { place, plan };
  }

  /** The process has none of the function's plans, or none at all. */
  forget(key?: string): void {
    if (key === undefined) this.#places.clear();
    else this.#places.delete(key);
  }
}

/** The plans of one function in the GPU process. */
export class KeptPlans {
  readonly #plans: ColdStartPlan[] = [];

  /** Call it in the order in which the runs were sent. Undefined: the host has never sent it. */
  of({ place, plan }: PlacedPlan): ColdStartPlan | undefined {
    if (plan !== undefined) this.#plans[place] = plan;
    return this.#plans[place];
  }
}
