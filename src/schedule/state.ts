import { named, type FunctionId, type Given } from './ids.ts';
import { Bases } from './bases.ts';
import type { ServedFunction } from './function.ts';
import { Gpu, type Slot } from './gpu.ts';
import { Heap } from './heap.ts';
import { HostMemory } from './host-memory.ts';
import type { Invocation } from './invocation.ts';
import { LinkLanes } from './links.ts';
import { Popularity } from './learnt.ts';
import { Pressure } from './miss-cost.ts';
import type { OfferSheet } from './offer.ts';
import { Orders } from './orders.ts';
import { Variants } from './plan-variants.ts';
import type { Policy } from './policy.ts';
import { Slots } from './slots.ts';
import { tuning } from './tuning.ts';
import type { HostTier, SchedulerGpu } from './types.ts';

const { candidatesMax } = tuning.routing;

/** What the parts of the scheduler share. What belongs to one GPU, function or invocation stands in these. */
export class SchedulerState {
  readonly policy: Policy;
  readonly orders = new Orders();
  readonly gpus: readonly Gpu[];
  /** By number. */
  readonly functions: (ServedFunction | undefined)[] = [];
  readonly links: LinkLanes;
  readonly pressure: Pressure;
  readonly popularity = new Popularity();
  readonly variants: Variants;
  readonly slots = new Slots();
  readonly bases: Bases;
  /** Undefined: everything is in host memory. */
  readonly host: HostMemory | undefined;
  /** Whether a resident function stays as long as invocations wait for it. */
  readonly sparesWaiting: boolean;
  /** GPUs by the wake that they asked for. */
  readonly wakes = new Heap<Gpu>();
  /** GPUs by when their lane and link will be free of what is there now; kept only where they are too many to weigh all. */
  readonly backlog = new Heap<Gpu>();
  /** GPUs on which what is pinned has just changed. */
  readonly pinnedOn: Gpu[] = [];
  /** What a larger variant of these has more is on its way. */
  readonly growing = new Set<Slot>();
  /** Whether all invocations so far had the same SLO and priority: then arrival order is deadline order. */
  isUniform = true;
  #commonSloMs = NaN;

  constructor(gpus: readonly SchedulerGpu[], policy: Policy, host?: HostTier) {
    this.policy = policy;
    // A function that is loaded ahead must not be evicted before it has run, or two functions could evict each other
    // forever.
    this.sparesWaiting = policy.order === 'slo-first' || policy.loadAhead;
    this.links = new LinkLanes(gpus);
    this.pressure = new Pressure(gpus.length, this.links);
    this.variants = new Variants(gpus.length);
    this.bases = new Bases(policy);
    this.host = host && new HostMemory(host, this);
    this.gpus = gpus.map((gpu, number) => new Gpu(named(number), gpu, this));
    if (gpus.length > candidatesMax) for (const gpu of this.gpus) this.backlog.add(gpu, 0);
  }

  /** The function of this number. @throws RangeError where there is none */
  functionOf(number: Given<FunctionId>): ServedFunction {
    const fn = this.functions[number];
    if (fn === undefined || fn.isRemoved) throw new RangeError(`there is no function ${number}`);
    return fn;
  }

  /** A function is new, or its SLO or priority changed. */
  setCommon({ sloMs, priority }: OfferSheet): void {
    if (Number.isNaN(this.#commonSloMs)) this.#commonSloMs = sloMs;
    if (this.#commonSloMs !== sloMs || priority !== 0) this.isUniform = false;
  }

  /** Whether GPUs can be loaded with the function, without reading the disk first. */
  isInHostMemory(fn: ServedFunction): boolean {
    return this.host === undefined || this.host.has(fn);
  }

  /** A GPU has more or less to do than before. */
  backlogChanged(gpu: Gpu): void {
    if (this.backlog.size === 0) return;
    const { runnableMs, loadableMs, linkMs } = gpu.line;
    this.backlog.remove(gpu);
    this.backlog.add(gpu, Math.max(gpu.laneEndMs, this.links.freeMs(gpu.number)) + runnableMs + loadableMs + linkMs);
  }

  /** The slot of an invocation that waits for a GPU or runs there. */
  slotOf({ fn, place }: Invocation): Slot {
    return this.slots.open(fn, this.gpus[place as number]!);
  }
}
