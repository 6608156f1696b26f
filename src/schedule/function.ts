import type { FunctionId } from './ids.ts';
import type { Numbered } from './heap.ts';
import { leastOf, type GpuOffer, type LeastOfOffers, type OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';

/** A function, with what its offer sheet says. */
export class ServedFunction {
  readonly number: FunctionId;
  readonly policy: Policy;
  /** The latest. It stays when the function is removed, for what still runs. */
  sheet: OfferSheet;
  isRemoved = false;
  /** What no GPU goes below. One object for all functions of a model. */
  least: LeastOfOffers;
  /** Stands for the layers that it shares, where it has no others. */
  twinOf: ServedFunction | undefined = undefined;
  #copies = 0;
  /** Whether it cannot run: something that it executes from host memory is neither there nor on its way. */
  lacksExecuted = false;

  constructor(number: FunctionId, sheet: OfferSheet, policy: Policy) {
    this.number = number;
    this.policy = policy;
    this.sheet = sheet;
    this.least = leastOf(sheet.gpus);
  }

  setSheet(sheet: OfferSheet): void {
    this.sheet = sheet;
    this.isRemoved = false;
    this.least = leastOf(sheet.gpus);
  }

  /** No GPU that has nothing of the function could answer sooner. Without loads ahead that is not known: 0. */
  get leastColdMs(): number {
    return this.policy.loadAhead ? this.least.coldMs : 0;
  }

  /** On how many GPUs it is resident as a whole. */
  get copies(): number {
    return this.twinOf === undefined ? this.#copies : this.twinOf.#copies;
  }

  /** It is resident as a whole on one GPU more, or less. */
  copied(by: 1 | -1): void {
    this.#copies += by;
  }

  /** Whether calls that can no longer meet their SLO are refused. */
  get sheds(): boolean {
    return (this.sheet.admission ?? this.policy.admission) === 'shed';
  }

  /** Its largest plan variant for a GPU. */
  offerFor(gpu: Numbered): GpuOffer | null | undefined {
    return this.isRemoved ? undefined : this.sheet.gpus[gpu.number];
  }
}
