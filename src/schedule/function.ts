import type { FunctionId } from './ids.ts';
import type { Numbered } from './heap.ts';
import { leastOf, type GpuOffer, type OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';

/** A function, with what its offer sheet says. */
export class ServedFunction {
  readonly number: FunctionId;
  readonly policy: Policy;
  /** The latest. It stays when the function is removed, for what still runs. */
  sheet: OfferSheet;
  isRemoved = false;
  /** No GPU that has nothing of the function could answer sooner. Without loads ahead that is not known: 0. */
  leastColdMs = NaN;
  /** No GPU could answer sooner. */
  leastWarmMs = NaN;
  /** Whether other functions may have layers of it. */
  sharesLayers = false;
  /** Stands for the layers that it shares, where it has no others. */
  twinOf: ServedFunction | undefined = undefined;
  #copies = 0;
  /** Whether it cannot run: something that it executes from host memory is neither there nor on its way. */
  lacksExecuted = false;

  constructor(number: FunctionId, sheet: OfferSheet, policy: Policy) {
    this.number = number;
    this.policy = policy;
    this.sheet = sheet;
    this.setSheet(sheet);
  }

  setSheet(sheet: OfferSheet): void {
    this.sheet = sheet;
    this.isRemoved = false;
    const { coldMs, warmMs, sharesLayers } = leastOf(sheet.gpus);
    this.leastColdMs = this.policy.loadAhead ? coldMs : 0;
    this.leastWarmMs = warmMs;
    this.sharesLayers = sharesLayers;
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
