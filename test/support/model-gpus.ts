/** The GPUs of the scheduler's model: what is resident, loads, grows and runs there. */
import {
  batchMs,
  tuning,
  variantNamed,
  wholeBytes,
  wholePrefix,
  type Action,
  type GpuOffer,
  type LoadOrder,
  type OfferSheet,
  type SharedPrefix,
} from '../../src/schedule/index.ts';
import {
  executedBytesOf,
  hostBytesOf,
  refuse,
  type InHost,
  type ModelInvocation,
  type ModelLedger,
  type Resident,
  type Running,
} from './model-ledger.ts';

/**
 * For the oldest that waits beyond the bound: one turn in `tuning.queues.overdueShare` is its own, and it may need one on the link
 * before.
 */
const passesMax = 2 * (tuning.queues.overdueShare + 1);

export class ModelGpus {
  readonly #ledger: ModelLedger;
  /** By GPU: the bytes of each function's own, which layers they are, and under which plan. */
  readonly resident: Map<number, Resident>[];
  /** By GPU: layers that functions share, by their name. */
  readonly shared: Map<string, Resident>[];
  readonly loading: Map<number, LoadOrder>[];
  /** By GPU: what the function that runs there has in common with others, by the sheet that it began with. */
  readonly #runWith: (SharedPrefix | undefined)[] = [];
  /** What a load brings that other functions share. */
  readonly #brought = new Map<LoadOrder, SharedPrefix | undefined>();
  readonly running: (Running | undefined)[];
  readonly #growing: Map<number, Action & { kind: 'grow' }>[];
  /** By growth: the offer that it was ordered by. */
  readonly #grownFrom = new Map<Action, GpuOffer>();
  /** By GPU: the invocation that waits longest beyond the bound, and how often it was passed over since. */
  readonly #passed: { readonly invocation: number; readonly count: number }[] = [];
  shrinks = 0;
  growths = 0;
  evictions = 0;
  /** Runs, loads and growths that have begun. */
  begun = 0;
  /** Invocations that shared the run of another one. */
  companions = 0;

  constructor(ledger: ModelLedger) {
    const { gpus } = ledger.options;
    this.#ledger = ledger;
    this.resident = gpus.map(() => new Map());
    this.shared = gpus.map(() => new Map());
    this.loading = gpus.map(() => new Map());
    this.#growing = gpus.map(() => new Map());
    this.running = gpus.map(() => undefined);
  }

  /** What a GPU has of a function, with what that shares. */
  there(functionIndex: number, gpu: number): Resident | undefined {
    const own = this.resident[gpu]!.get(functionIndex);
    const offer = this.#ledger.sheets.get(functionIndex)?.gpus[gpu];
    if (!offer?.shared) return own;
    const base = this.shared[gpu]!.get(offer.shared.base);
    // What it has of its own lies above all that it shares.
    const prefix = own?.prefix ?? Math.min(base?.prefix ?? 0, offer.shared.layers);
    if (prefix === 0) return undefined;
    if (own === undefined) return { prefix, bytes: offer.prefixBytes[prefix]!, plan: offer.plan };
    return { prefix, bytes: own.bytes + offer.prefixBytes[own.shared?.layers ?? 0]!, plan: own.plan };
  }

  isLoading(functionIndex: number, gpu: number): boolean {
    return this.loading[gpu]!.has(functionIndex) || this.#bringsBase(functionIndex, gpu) !== undefined;
  }

  /** Another function whose load brings what this one shares with it. */
  #bringsBase(functionIndex: number, gpu: number): number | undefined {
    const shared = this.#sharedOf(functionIndex, gpu);
    if (shared === undefined) return undefined;
    for (const [other, order] of this.loading[gpu]!) {
      const brought = this.#brought.get(order);
      if (other === functionIndex || brought?.base !== shared.base) continue;
      if (order.prefix < Math.min(brought.layers, shared.layers)) return other;
    }
    return undefined;
  }

  #sharedOf(functionIndex: number, gpu: number) {
    return this.#ledger.sheets.get(functionIndex)?.gpus[gpu]?.shared;
  }

  /** It may not share this any more, but for what is still under way. */
  #sharedLately(functionIndex: number, gpu: number) {
    return this.#sharedOf(functionIndex, gpu) ?? this.#ledger.formerly.get(functionIndex)?.gpus[gpu]?.shared;
  }

  /**
   * The function has another sheet. Where the layers are the same and nothing of the base is there, those that it shares
   * now are the base's from now on.
   */
  changed(functionIndex: number): void {
    // One that was removed while it grew has none, and shares nothing any more.
    const offers = this.#ledger.sheets.get(functionIndex)?.gpus ?? [];
    for (const [gpu, offer] of offers.entries()) {
      const own = this.resident[gpu]!.get(functionIndex);
      // What grows is not shared before it has grown.
      if (own === undefined || !offer?.shared || this.#growing[gpu]!.has(functionIndex)) continue;
      const { base, layers } = offer.shared;
      const { prefixBytes } = variantNamed(offer, own.plan);
      const low = own.shared?.layers ?? 0;
      const isOther = own.shared !== undefined && own.shared.base !== base;
      if (isOther || layers <= low || own.prefixBytes?.join() !== prefixBytes.join()) continue;
      if ((this.shared[gpu]!.get(base)?.prefix ?? 0) !== low) continue;
      own.shared = offer.shared;
      // What is on its way of it is on its way for the others as well.
      const order = this.loading[gpu]!.get(functionIndex);
      if (order !== undefined) this.#brought.set(order, offer.shared);
      if (this.running[gpu]?.functionIndex === functionIndex) this.#runWith[gpu] = offer.shared;
      const prefix = Math.min(own.prefix, layers);
      this.shared[gpu]!.set(base, { prefix, bytes: offer.prefixBytes[prefix]!, plan: offer.plan });
      if (own.prefix > layers) own.bytes = prefixBytes[own.prefix]! - prefixBytes[layers]!;
      else this.resident[gpu]!.delete(functionIndex);
    }
  }

  /** Everything on its way to a GPU has arrived. */
  loaded(functionIndex: number, gpu: number): void {
    this.loading[gpu]!.delete(functionIndex);
    const growth = this.#growing[gpu]!.get(functionIndex);
    if (growth === undefined) return;
    this.#growing[gpu]!.delete(functionIndex);
    const resident = this.resident[gpu]!.get(functionIndex)!;
    resident.plan = growth.plan;
    resident.prefixBytes = variantNamed(this.#grownFrom.get(growth)!, growth.plan).prefixBytes;
    this.changed(functionIndex);
  }

  run(action: Action & { kind: 'run' }): void {
    this.begun++;
    const { invocation: number, functionIndex, gpu, load, plan } = action;
    const invocation = this.#ledger.toRun(number, functionIndex);
    if (!this.#ledger.up[gpu]) refuse(`GPU ${gpu} is gone`);
    if (this.running[gpu] !== undefined) refuse(`GPU ${gpu} runs something already`);
    this.#checkBound(invocation, gpu);
    if (load !== null) this.load(functionIndex, gpu, load, plan);
    const offer = variantNamed(this.#ledger.sheets.get(functionIndex)!.gpus[gpu]!, plan);
    const resident = this.there(functionIndex, gpu);
    if (resident !== undefined && resident.plan !== plan) {
      refuse(`function ${functionIndex} runs under plan ${plan}, and is resident under ${resident.plan}`);
    }
    // Layers of a larger plan that are on their way are not part of this run.
    const bytes = (resident?.bytes ?? 0) - this.#growthBytes(functionIndex, gpu);
    // Bytes on their way count: they are reserved.
    if (bytes !== wholeBytes(offer)) refuse(`function ${functionIndex} runs on GPU ${gpu} with ${bytes} bytes there`);
    this.#checkExecuted(functionIndex, gpu);
    invocation.state = 'running';
    invocation.place = gpu;
    const companions = (action.companions ?? []).map((each) => each.invocation);
    const running: Running = { invocation: number, functionIndex, companions };
    this.running[gpu] = running;
    this.#runWith[gpu] = offer.shared;
    const runMs = companions.length > 0 ? this.#join(action, offer) : offer.warmMs;
    const stretch = this.#ledger.options.stretch();
    const finish = (): void => {
      this.#ledger.plan(
        this.#ledger.nowMs + runMs * stretch,
        { kind: 'finished', invocation: number },
        () => this.running[gpu] === running,
      );
    };
    const loaded = this.loading[gpu]!.has(functionIndex) ? functionIndex : this.#bringsBase(functionIndex, gpu);
    if (loaded === undefined) finish();
    else {
      // After a load: the run ends when the load has, and not before a warm run would.
      const loadEnd = this.#ledger.due.find(
        ({ event, isValid }) =>
          event.kind === 'loaded' && event.gpu === gpu && event.functionIndex === loaded && isValid(),
      )!;
      this.#ledger.plan(
        Math.max(this.#ledger.nowMs + runMs * stretch, loadEnd.atMs),
        { kind: 'finished', invocation: number },
        () => this.running[gpu] === running,
      );
    }
  }

  /**
   * Checks that invocations that share a run have the same key, are on time if they could be, and lose nothing. Returns
   * the time of the run.
   */
  #join(
    { invocation: number, functionIndex, gpu, companions = [], predictedEndMs }: Action & { kind: 'run' },
    offer: GpuOffer,
  ): number {
    const { sheets, invocations, nowMs, options } = this.#ledger;
    if (options.policy.order === 'fifo') refuse(`invocation ${number} is joined where turns are strictly in order`);
    const first = invocations.get(number)!;
    let rows = first.join?.rows ?? 0;
    for (const { invocation: other, decision } of companions) {
      const companion = this.#ledger.toRun(other, functionIndex);
      if (other === number || first.join === undefined || companion.join?.key !== first.join.key)
        refuse(`invocations ${number} and ${other} are joined, and have different keys`);
      if (decision === undefined) refuse(`nothing tells why invocation ${other} runs there`);
      companion.state = 'running';
      companion.place = gpu;
      rows += companion.join.rows;
      this.companions++;
    }
    const runMs = batchMs(offer.batches ?? [], rows);
    const calls = [number, ...companions.map((each) => each.invocation)].map((each) => invocations.get(each)!);
    const oneByOneMs = calls.map(({ join }) =>
      Math.max(offer.warmMs, join!.rows > 1 ? batchMs(offer.batches ?? [], join!.rows) : 0),
    );
    if (runMs > 0.75 * oneByOneMs.reduce((sum, each) => sum + each)) refuse(`to join ${rows} rows saves too little`);
    if (this.isLoading(functionIndex, gpu)) return runMs;
    const { sloMs } = sheets.get(functionIndex)!;
    for (const { arrivalMs } of calls) {
      const isMadeLate = nowMs + offer.warmMs <= arrivalMs + sloMs && predictedEndMs > arrivalMs + sloMs;
      if (isMadeLate) refuse(`a run of ${rows} rows that ends at ${predictedEndMs} makes one of them late`);
    }
    return runMs;
  }

  /** What all is executed of from host memory runs only once it is there; of others, the rest may still be read. */
  #checkExecuted(functionIndex: number, gpu: number): void {
    const sheet = this.#ledger.sheets.get(functionIndex);
    const executedBytes = executedBytesOf(sheet);
    if (this.#ledger.options.host === undefined || executedBytes === 0) return;
    const { bytes, readBytes } = this.#ledger.inHost.get(functionIndex) ?? { bytes: 0, readBytes: 0 };
    const readyBytes = executedBytes === hostBytesOf(sheet) ? bytes - readBytes : bytes;
    if (readyBytes < executedBytes)
      refuse(`function ${functionIndex} runs on GPU ${gpu}, and executes from ${readyBytes} of ${executedBytes} bytes`);
  }

  /** The run of a GPU is over. Returns how many companions ended with it. */
  finished(gpu: number): number {
    const { companions } = this.running[gpu]!;
    this.running[gpu] = undefined;
    for (const companion of companions) this.#ledger.invocations.get(companion)!.state = 'ended';
    return companions.length;
  }

  /** The invocations of a lost run must be placed again at once, as if they arrived. */
  placedAnew(gpu: number): void {
    const { invocation, companions } = this.running[gpu]!;
    this.running[gpu] = undefined;
    for (const each of [invocation, ...companions]) {
      // An invocation that spoils a run takes others along only once.
      Object.assign(this.#ledger.invocations.get(each)!, { state: 'arriving', join: undefined });
    }
  }

  load(functionIndex: number, gpu: number, order: LoadOrder, plan: string | undefined): void {
    this.begun++;
    const sheet = this.#ledger.sheets.get(functionIndex);
    const top = sheet?.gpus[gpu];
    if (!top) refuse(`function ${functionIndex} has no offer for GPU ${gpu}`);
    const offer = variantNamed(top, plan);
    if (offer.plan !== plan) refuse(`function ${functionIndex} has no plan ${plan}`);
    if (!this.#ledger.up[gpu]) refuse(`GPU ${gpu} is gone`);
    if (this.#ledger.options.host && (this.#ledger.inHost.get(functionIndex)?.bytes ?? 0) < hostBytesOf(sheet)) {
      refuse(`function ${functionIndex} is loaded, and is neither in host memory nor on its way there`);
    }
    for (const { link } of order.way.transfers) if (!this.#ledger.up[link]) refuse(`the link of GPU ${link} is gone`);
    if (!offer.ways.includes(order.way)) refuse('a way that the function does not offer');
    if (this.loading[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} is being loaded already`);
    if (this.#bringsBase(functionIndex, gpu) !== undefined)
      refuse(`what function ${functionIndex} shares is on its way`);
    const before = this.there(functionIndex, gpu)?.prefix ?? 0;
    if (before !== order.prefix) refuse(`function ${functionIndex} has ${before} layers there, not ${order.prefix}`);
    const { shared } = offer;
    const sharedBytes = offer.prefixBytes[shared?.layers ?? 0]!;
    if (shared !== undefined && (this.shared[gpu]!.get(shared.base)?.prefix ?? 0) < shared.layers)
      this.shared[gpu]!.set(shared.base, { prefix: shared.layers, bytes: sharedBytes, plan });
    if (wholePrefix(offer) > (shared?.layers ?? 0))
      this.resident[gpu]!.set(functionIndex, {
        prefix: wholePrefix(offer),
        bytes: wholeBytes(offer) - sharedBytes,
        plan,
        shared,
        prefixBytes: offer.prefixBytes,
      });
    this.loading[gpu]!.set(functionIndex, order);
    this.#brought.set(order, shared);
    // What is still being read arrives behind the read.
    const read = this.#ledger.due.find(
      ({ event, isValid }) => event.kind === 'staged' && event.functionIndex === functionIndex && isValid(),
    );
    const linkMs = order.way.transfers[0].ms[order.prefix]! * this.#ledger.options.stretch();
    this.#ledger.plan(
      Math.max(this.#ledger.nowMs + linkMs, read?.atMs ?? 0),
      { kind: 'loaded', gpu, functionIndex },
      () => this.loading[gpu]!.get(functionIndex) === order,
    );
  }

  grow(action: Action & { kind: 'grow' }): void {
    this.begun++;
    const { functionIndex, gpu, plan, load } = action;
    const top = this.#ledger.sheets.get(functionIndex)?.gpus[gpu];
    if (!top) refuse(`function ${functionIndex} has no offer for GPU ${gpu}`);
    if (this.#ledger.sheets.get(functionIndex)!.pinned) refuse(`function ${functionIndex} is pinned, and grows`);
    const resident = this.resident[gpu]!.get(functionIndex);
    const before = variantNamed(top, resident?.plan);
    if (resident?.prefix !== wholePrefix(before))
      refuse(`function ${functionIndex} grows, and is not there as a whole`);
    if (this.loading[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} grows while it is being loaded`);
    if (this.#growing[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} grows already`);
    const [{ bytes, ms, link }, ...others] = load.way.transfers;
    const neededBytes = wholeBytes(variantNamed(top, plan)) - wholeBytes(before);
    if (link !== gpu || others.length > 0 || !this.#ledger.up[gpu])
      refuse(`function ${functionIndex} grows over other links`);
    if (bytes[0] !== neededBytes || neededBytes <= 0)
      refuse(`${bytes[0]} bytes are to come, and ${neededBytes} missing`);
    resident.bytes += neededBytes;
    resident.prefix = wholePrefix(variantNamed(top, plan));
    this.#growing[gpu]!.set(functionIndex, action);
    this.#grownFrom.set(action, top);
    this.growths++;
    const isValid = (): boolean => this.#growing[gpu]!.get(functionIndex) === action;
    this.#ledger.plan(
      this.#ledger.nowMs + ms[0]! * this.#ledger.options.stretch(),
      { kind: 'loaded', gpu, functionIndex },
      isValid,
    );
  }

  shrink({ functionIndex, gpu, plan, bytes }: Action & { kind: 'shrink' }): void {
    const { gpus, pinned, sloMs } = this.#ledger.sheets.get(functionIndex)!;
    if (pinned) refuse(`function ${functionIndex} is pinned, and is shrunk`);
    if (this.#isBusy(functionIndex, gpu)) refuse(`function ${functionIndex} is in use, and is shrunk`);
    const resident = this.resident[gpu]!.get(functionIndex);
    const before = variantNamed(gpus[gpu]!, resident?.plan);
    if (resident?.prefix !== wholePrefix(before)) refuse(`function ${functionIndex} is not whole, and is shrunk`);
    const after = variantNamed(gpus[gpu]!, plan);
    if (after.plan !== plan || after.warmMs > sloMs) refuse(`plan ${plan} of function ${functionIndex} misses its SLO`);
    if (bytes <= 0 || wholeBytes(before) - wholeBytes(after) !== bytes) refuse(`${bytes} bytes do not come of ${plan}`);
    const { prefixBytes } = after;
    Object.assign(resident, { prefix: wholePrefix(after), bytes: resident.bytes - bytes, plan, prefixBytes });
    this.shrinks++;
  }

  evict({ functionIndex, gpu, prefix, bytes, cause, base }: Action & { kind: 'evict' }): void {
    if (base !== undefined) {
      if (this.#sharedLately(functionIndex, gpu) === undefined) refuse(`function ${functionIndex} shares nothing`);
      this.#evictShared(base, gpu, prefix, bytes);
      return;
    }
    if (this.running[gpu]?.functionIndex === functionIndex) refuse(`function ${functionIndex} runs on GPU ${gpu}`);
    if (this.loading[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} is being loaded to GPU ${gpu}`);
    if (this.#growing[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} is growing on GPU ${gpu}`);
    if (cause === 'capacity' || cause === 'trim' || cause === 'migration') {
      this.evictions++;
      this.#checkShrunk(gpu);
    }
    const resident = this.resident[gpu]!.get(functionIndex);
    if (resident === undefined || prefix >= resident.prefix) refuse(`function ${functionIndex} has not that much`);
    resident.prefix = prefix;
    resident.bytes -= bytes;
    const isGone = resident.bytes < 1e-6 || prefix === 0;
    if (isGone) this.resident[gpu]!.delete(functionIndex);
    if (prefix === 0 && Math.abs(resident.bytes) > 1e-6) refuse(`${resident.bytes} bytes are left of nothing`);
  }

  #evictShared(base: string, gpu: number, prefix: number, bytes: number): void {
    const there = this.shared[gpu]!.get(base);
    if (there === undefined || prefix >= there.prefix) refuse(`there is not that much of ${base}`);
    this.evictions++;
    for (const functionIndex of this.#ledger.sheets.keys()) {
      const shared = this.#sharedOf(functionIndex, gpu);
      if (shared?.base !== base || prefix >= shared.layers) continue;
      if (this.resident[gpu]!.has(functionIndex))
        refuse(`function ${functionIndex} has layers above what goes of ${base}`);
      const runs = this.running[gpu]?.functionIndex === functionIndex && this.#runWith[gpu]?.base === base;
      const order = this.loading[gpu]!.get(functionIndex);
      const loads = order !== undefined && this.#brought.get(order)?.base === base;
      if (runs || loads) refuse(`function ${functionIndex} uses what goes of ${base}`);
    }
    there.prefix = prefix;
    there.bytes -= bytes;
    if (prefix === 0) this.shared[gpu]!.delete(base);
    if (prefix === 0 && Math.abs(there.bytes) > 1e-6) refuse(`${there.bytes} bytes are left of nothing of ${base}`);
  }

  abandon(functionIndex: number, gpu: number): void {
    this.loading[gpu]!.delete(functionIndex);
    this.#growing[gpu]!.delete(functionIndex);
    if (this.running[gpu]?.functionIndex === functionIndex) this.placedAnew(gpu);
  }

  /** Checks that the longest waiting invocation beyond the bound is not passed over more often than allowed. */
  #checkBound({ order }: ModelInvocation, gpu: number): void {
    const { options, sheets, inHost, invocations, nowMs } = this.#ledger;
    let oldest = -1;
    let oldestOrder = order;
    for (const [other, { state, place: at, order: otherOrder, arrivalMs, functionIndex }] of invocations) {
      if (state !== 'waiting' || at !== gpu || otherOrder >= oldestOrder) continue;
      if (nowMs - arrivalMs < options.policy.waitBoundMs) continue;
      // Its turn cannot come while the disk is read.
      if (options.host && !isHere(sheets.get(functionIndex), inHost.get(functionIndex))) continue;
      oldest = other;
      oldestOrder = otherOrder;
    }
    // During its own load the lane is for others, however long that takes: those do not count as passing it over.
    if (oldest >= 0 && this.isLoading(invocations.get(oldest)!.functionIndex, gpu)) return;
    const before = this.#passed[gpu];
    const count = before?.invocation === oldest ? before.count + 1 : 1;
    this.#passed[gpu] = { invocation: oldest, count };
    if (oldest >= 0 && count > passesMax)
      refuse(`invocation ${oldest} waits longest for GPU ${gpu}, beyond the bound, and ${count} went before it`);
  }

  #growthBytes(functionIndex: number, gpu: number): number {
    return this.#growing[gpu]!.get(functionIndex)?.load.way.transfers[0].bytes[0] ?? 0;
  }

  #isBusy(functionIndex: number, gpu: number): boolean {
    if (this.running[gpu]?.functionIndex === functionIndex) return true;
    return this.loading[gpu]!.has(functionIndex) || this.#growing[gpu]!.has(functionIndex);
  }

  /** What nothing uses on a GPU, with nothing of the spared; undefined: there is none. */
  idle(gpu: number, spared: readonly number[]): string | undefined {
    const { invocations, sheets } = this.#ledger;
    const used = new Set(spared);
    for (const { state, functionIndex } of invocations.values())
      if (state === 'waiting' || state === 'running') used.add(functionIndex);
    for (const functionIndex of [...sheets.keys(), ...this.resident[gpu]!.keys()])
      if (sheets.get(functionIndex)?.pinned === true || this.#isBusy(functionIndex, gpu)) used.add(functionIndex);
    const own = [...this.resident[gpu]!.keys()].find((functionIndex) => !used.has(functionIndex));
    if (own !== undefined) return `function ${own}`;
    const bases = new Set([...used].map((functionIndex) => this.#sharedLately(functionIndex, gpu)?.base));
    return [...this.shared[gpu]!.keys()].find((base) => !bases.has(base));
  }

  /** Nothing may be evicted if an idle function could use a smaller plan instead. */
  #checkShrunk(gpu: number): void {
    const wanted = new Set<number>();
    for (const { state, functionIndex } of this.#ledger.invocations.values()) {
      if (state === 'waiting' || state === 'arriving') wanted.add(functionIndex);
    }
    for (const [functionIndex, resident] of this.resident[gpu]!) {
      const sheet = this.#ledger.sheets.get(functionIndex);
      const top = sheet?.gpus[gpu];
      if (!sheet || !top || sheet.pinned || wanted.has(functionIndex) || this.#isBusy(functionIndex, gpu)) continue;
      const offer = variantNamed(top, resident.plan);
      // Of a former plan.
      const ownBytes = wholeBytes(offer) - offer.prefixBytes[resident.shared?.layers ?? 0]!;
      if (offer.plan !== resident.plan || ownBytes !== resident.bytes) continue;
      for (let variant: GpuOffer | undefined = offer.smaller; variant !== undefined; variant = variant.smaller) {
        if (variant.warmMs <= sheet.sloMs && wholeBytes(variant) > 0) {
          refuse(`something goes from GPU ${gpu}, and function ${functionIndex} could do with plan ${variant.plan}`);
        }
      }
    }
  }
}

const isHere = (sheet: OfferSheet | undefined, host: InHost | undefined): boolean =>
  hostBytesOf(sheet) === 0 || (host !== undefined && host.readBytes === 0 && host.bytes >= hostBytesOf(sheet));
