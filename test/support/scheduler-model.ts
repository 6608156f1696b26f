/**
 * A shell around the scheduler that believes nothing: it keeps its own plain account of what is where, carries actions out
 * after drawn durations, and throws at the first action that cannot be right.
 */
import {
  rungNamed,
  Scheduler,
  wholeBytes,
  wholePrefix,
  type Action,
  type GpuOffer,
  type LoadOrder,
  type OfferSheet,
  type Policy,
  type SchedulerEvent,
  type SchedulerGpu,
} from '../../src/schedule/index.ts';

interface Running {
  readonly invocation: number;
  readonly functionIndex: number;
}

interface Invocation {
  readonly functionIndex: number;
  readonly arrivalMs: number;
  readonly order: number;
  state: 'arriving' | 'waiting' | 'running' | 'offloaded' | 'ended';
  gpu: number;
}

interface Due {
  readonly atMs: number;
  readonly order: number;
  readonly event: SchedulerEvent;
  /** Still true when it is due. */
  readonly isValid: () => boolean;
}

export interface ModelOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  readonly cpuCores: number;
  /** How long what is ordered takes, over what the offer says; drawn anew each time. */
  readonly stretch: () => number;
}

function refuse(what: string): never {
  throw new Error(what);
}

export class SchedulerModel {
  readonly scheduler: Scheduler;
  /** Every event and what came of it, as text. */
  readonly log: string[] = [];
  /** Each event with its time, to be told to another scheduler. */
  readonly told: { readonly event: SchedulerEvent; readonly nowMs: number }[] = [];
  readonly #options: ModelOptions;
  readonly #sheets = new Map<number, OfferSheet>();
  /** By GPU: the bytes of each function, what its layers are, and under which plan. */
  readonly #resident: Map<number, { prefix: number; bytes: number; plan: string | undefined }>[];
  readonly #growing: Map<number, Action & { kind: 'grow' }>[];
  readonly #loading: Map<number, LoadOrder>[];
  readonly #running: (Running | undefined)[];
  readonly #up: boolean[];
  readonly #invocations = new Map<number, Invocation>();
  #due: Due[] = [];
  #nowMs = 0;
  #order = 0;
  #arrived = 0;
  ended = 0;
  shrinks = 0;
  growths = 0;
  evictions = 0;

  constructor(options: ModelOptions) {
    const { gpus, policy, cpuCores } = options;
    this.#options = options;
    this.scheduler = new Scheduler({ gpus, policy, cpuCores });
    this.#resident = gpus.map(() => new Map());
    this.#loading = gpus.map(() => new Map());
    this.#growing = gpus.map(() => new Map());
    this.#running = gpus.map(() => undefined);
    this.#up = gpus.map(() => true);
  }

  get arrived(): number {
    return this.#arrived;
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  has(functionIndex: number): boolean {
    return this.#sheets.has(functionIndex);
  }

  isUp(gpu: number): boolean {
    return this.#up[gpu]!;
  }

  setSheet(functionIndex: number, sheet: OfferSheet): void {
    const kind = this.#sheets.has(functionIndex) ? 'sheet-changed' : 'function-added';
    this.#sheets.set(functionIndex, sheet);
    this.#tell({ kind, functionIndex, sheet });
  }

  removeFunction(functionIndex: number): void {
    this.#sheets.delete(functionIndex);
    this.#tell({ kind: 'function-removed', functionIndex });
  }

  arrive(functionIndex: number): void {
    const invocation = this.#arrived++;
    this.#invocations.set(invocation, {
      functionIndex,
      arrivalMs: this.#nowMs,
      order: invocation,
      state: 'arriving',
      gpu: -1,
    });
    this.#tell({ kind: 'arrival', invocation, functionIndex });
    const { state } = this.#invocations.get(invocation)!;
    if (state === 'arriving') refuse(`nothing was decided about invocation ${invocation}`);
  }

  /** Of a waiting invocation, by its place among them; nothing when none waits. */
  depart(place: number): void {
    const waiting = [...this.#invocations].filter(([, { state }]) => state === 'waiting');
    const chosen = waiting[place % Math.max(1, waiting.length)];
    if (chosen === undefined) return;
    chosen[1].state = 'ended';
    this.ended++;
    this.#tell({ kind: 'departed', invocation: chosen[0] });
  }

  setGpu(gpu: number, isUp: boolean): void {
    if (this.#up[gpu] === isUp) return;
    this.#up[gpu] = isUp;
    this.#tell({ kind: isUp ? 'gpu-back' : 'gpu-lost', gpu });
    if (!isUp && (this.#resident[gpu]!.size > 0 || this.#running[gpu] !== undefined)) {
      refuse(`GPU ${gpu} is gone, and something is still on it`);
    }
  }

  /** Lets time pass. */
  pass(durationMs: number): void {
    const untilMs = this.#nowMs + durationMs;
    for (;;) {
      this.#due.sort((a, b) => a.atMs - b.atMs || a.order - b.order);
      const next = this.#due[0];
      if (next === undefined || next.atMs > untilMs) break;
      this.#due.shift();
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      if (next.isValid()) this.#happen(next.event);
    }
    if (untilMs < Infinity) this.#nowMs = untilMs;
  }

  /** Everything to its end. */
  drain(): void {
    this.pass(Infinity);
    for (const [invocation, { state }] of this.#invocations) {
      if (state !== 'ended') refuse(`invocation ${invocation} never ended: it is ${state}`);
    }
  }

  #happen(event: SchedulerEvent): void {
    if (event.kind === 'finished') {
      const invocation = this.#invocations.get(event.invocation)!;
      if (invocation.state === 'running') this.#running[invocation.gpu] = undefined;
      invocation.state = 'ended';
      this.ended++;
    } else if (event.kind === 'loaded') {
      this.#loading[event.gpu]!.delete(event.functionIndex);
      const growth = this.#growing[event.gpu]!.get(event.functionIndex);
      if (growth !== undefined) {
        this.#growing[event.gpu]!.delete(event.functionIndex);
        this.#resident[event.gpu]!.get(event.functionIndex)!.plan = growth.plan;
      }
    }
    this.#tell(event);
  }

  #tell(event: SchedulerEvent): void {
    this.told.push({ event, nowMs: this.#nowMs });
    const actions = this.scheduler.handle(event, this.#nowMs);
    this.log.push(`${this.#nowMs} ${JSON.stringify({ ...event, sheet: undefined })} => ${JSON.stringify(actions)}`);
    for (const action of actions) this.#do(action);
    for (const [gpu, { capacityBytes }] of this.#options.gpus.entries()) {
      let bytes = 0;
      for (const resident of this.#resident[gpu]!.values()) ({ bytes } = { bytes: bytes + resident.bytes });
      if (bytes > capacityBytes) refuse(`GPU ${gpu} holds ${bytes} bytes of ${capacityBytes}`);
      if (Math.abs(bytes - this.scheduler.residentBytes(gpu)) > 1e-6) {
        refuse(`GPU ${gpu} holds ${bytes} bytes, and the scheduler counts ${this.scheduler.residentBytes(gpu)}`);
      }
    }
  }

  #do(action: Action): void {
    switch (action.kind) {
      case 'run':
        this.#run(action);
        break;
      case 'load':
        if (this.#invocations.get(action.invocation)?.state === 'ended') refuse('a load for one that has ended');
        this.#load(action.functionIndex, action.gpu, action.load, action.plan);
        break;
      case 'grow':
        this.#grow(action);
        break;
      case 'shrink':
        this.#shrink(action);
        break;
      case 'evict':
        this.#evict(action);
        break;
      case 'abandon':
        this.#abandon(action.functionIndex, action.gpu);
        break;
      case 'offload':
        this.#offload(action.invocation);
        break;
      case 'wait': {
        const invocation = this.#invocations.get(action.invocation)!;
        if (invocation.state !== 'arriving' && invocation.state !== 'waiting') {
          refuse(`invocation ${action.invocation} is to wait, and is ${invocation.state}`);
        }
        if (!this.#up[action.gpu]) refuse(`invocation ${action.invocation} is to wait for a GPU that is gone`);
        invocation.state = 'waiting';
        invocation.gpu = action.gpu;
        break;
      }
      case 'wake':
        this.#plan(action.atMs, { kind: 'wake' }, () => true);
        break;
      case 'shed':
      case 'fail': {
        const invocation = this.#invocations.get(action.invocation)!;
        if (invocation.state !== 'arriving' && invocation.state !== 'waiting') {
          refuse(`invocation ${action.invocation} cannot end twice: it is ${invocation.state}`);
        }
        invocation.state = 'ended';
        this.ended++;
        break;
      }
    }
  }

  #run({ invocation: number, functionIndex, gpu, load, plan }: Action & { kind: 'run' }): void {
    const invocation = this.#invocations.get(number)!;
    if (invocation.state !== 'arriving' && invocation.state !== 'waiting') {
      refuse(`invocation ${number} is to run, and is ${invocation.state}`);
    }
    if (invocation.functionIndex !== functionIndex) refuse(`invocation ${number} is of another function`);
    if (!this.#up[gpu]) refuse(`GPU ${gpu} is gone`);
    if (this.#running[gpu] !== undefined) refuse(`GPU ${gpu} runs something already`);
    this.#checkBound(number, invocation, gpu);
    if (load !== null) this.#load(functionIndex, gpu, load, plan);
    const offer = rungNamed(this.#sheets.get(functionIndex)!.gpus[gpu]!, plan);
    const resident = this.#resident[gpu]!.get(functionIndex);
    if (resident !== undefined && resident.plan !== plan) {
      refuse(`function ${functionIndex} runs under plan ${plan}, and is resident under ${resident.plan}`);
    }
    // Those of a larger plan that are on their way are not what it runs with.
    const bytes = (resident?.bytes ?? 0) - this.#growthBytes(functionIndex, gpu);
    // What is on its way counts: the bytes are reserved.
    if (bytes !== wholeBytes(offer)) refuse(`function ${functionIndex} runs on GPU ${gpu} with ${bytes} bytes there`);
    invocation.state = 'running';
    invocation.gpu = gpu;
    const running: Running = { invocation: number, functionIndex };
    this.#running[gpu] = running;
    const stretch = this.#options.stretch();
    const finish = (): void => {
      this.#plan(
        this.#nowMs + offer.warmMs * stretch,
        { kind: 'finished', invocation: number },
        () => this.#running[gpu] === running,
      );
    };
    const order = this.#loading[gpu]!.get(functionIndex);
    if (order === undefined) finish();
    else {
      // Behind a load: it ends when the load has, and not before a warm run would.
      const loadEnd = this.#due.find(
        ({ event, isValid }) =>
          event.kind === 'loaded' && event.gpu === gpu && event.functionIndex === functionIndex && isValid(),
      )!;
      this.#plan(
        Math.max(this.#nowMs + offer.warmMs * stretch, loadEnd.atMs),
        { kind: 'finished', invocation: number },
        () => this.#running[gpu] === running,
      );
    }
  }

  /** Nobody who has waited beyond the bound is passed over. */
  #checkBound(number: number, { order }: Invocation, gpu: number): void {
    const { waitBoundMs } = this.#options.policy;
    for (const [other, one] of this.#invocations) {
      if (one.state !== 'waiting' || one.gpu !== gpu || one.order >= order) continue;
      if (this.#nowMs - one.arrivalMs >= waitBoundMs) {
        refuse(`invocation ${other} waits since ${one.arrivalMs}, and ${number} runs at ${this.#nowMs}`);
      }
    }
  }

  #growthBytes(functionIndex: number, gpu: number): number {
    return this.#growing[gpu]!.get(functionIndex)?.load.way.transfers[0].bytes[0] ?? 0;
  }

  #grow(action: Action & { kind: 'grow' }): void {
    const { functionIndex, gpu, plan, load } = action;
    const top = this.#sheets.get(functionIndex)?.gpus[gpu];
    if (!top) refuse(`function ${functionIndex} has no offer for GPU ${gpu}`);
    if (this.#sheets.get(functionIndex)!.pinned) refuse(`function ${functionIndex} is pinned, and grows`);
    const resident = this.#resident[gpu]!.get(functionIndex);
    const before = rungNamed(top, resident?.plan);
    if (resident?.prefix !== wholePrefix(before))
      refuse(`function ${functionIndex} grows, and is not there as a whole`);
    if (this.#loading[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} grows while it is being loaded`);
    if (this.#growing[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} grows already`);
    const [{ bytes, ms, link }, ...others] = load.way.transfers;
    const neededBytes = wholeBytes(rungNamed(top, plan)) - resident.bytes;
    if (link !== gpu || others.length > 0 || !this.#up[gpu]) refuse(`function ${functionIndex} grows over other links`);
    if (bytes[0] !== neededBytes || neededBytes <= 0)
      refuse(`${bytes[0]} bytes are to come, and ${neededBytes} missing`);
    resident.bytes += neededBytes;
    resident.prefix = wholePrefix(rungNamed(top, plan));
    this.#growing[gpu]!.set(functionIndex, action);
    this.growths++;
    const isValid = (): boolean => this.#growing[gpu]!.get(functionIndex) === action;
    this.#plan(this.#nowMs + ms[0]! * this.#options.stretch(), { kind: 'loaded', gpu, functionIndex }, isValid);
  }

  #shrink({ functionIndex, gpu, plan, bytes }: Action & { kind: 'shrink' }): void {
    const { gpus, pinned, sloMs } = this.#sheets.get(functionIndex)!;
    if (pinned) refuse(`function ${functionIndex} is pinned, and is shrunk`);
    if (this.#isBusy(functionIndex, gpu)) refuse(`function ${functionIndex} is in use, and is shrunk`);
    const resident = this.#resident[gpu]!.get(functionIndex);
    const before = rungNamed(gpus[gpu]!, resident?.plan);
    if (resident?.prefix !== wholePrefix(before)) refuse(`function ${functionIndex} is not whole, and is shrunk`);
    const after = rungNamed(gpus[gpu]!, plan);
    if (after.plan !== plan || after.warmMs > sloMs) refuse(`plan ${plan} of function ${functionIndex} misses its SLO`);
    if (bytes <= 0 || wholeBytes(before) - wholeBytes(after) !== bytes) refuse(`${bytes} bytes do not come of ${plan}`);
    this.#resident[gpu]!.set(functionIndex, { prefix: wholePrefix(after), bytes: wholeBytes(after), plan });
    this.shrinks++;
  }

  #isBusy(functionIndex: number, gpu: number): boolean {
    if (this.#running[gpu]?.functionIndex === functionIndex) return true;
    return this.#loading[gpu]!.has(functionIndex) || this.#growing[gpu]!.has(functionIndex);
  }

  /** Nothing goes for room while something idle could do with a smaller plan. */
  #checkShrunk(gpu: number): void {
    const wanted = new Set<number>();
    for (const { state, functionIndex } of this.#invocations.values()) {
      if (state === 'waiting' || state === 'arriving') wanted.add(functionIndex);
    }
    for (const [functionIndex, resident] of this.#resident[gpu]!) {
      const sheet = this.#sheets.get(functionIndex);
      const top = sheet?.gpus[gpu];
      if (!sheet || !top || sheet.pinned || wanted.has(functionIndex) || this.#isBusy(functionIndex, gpu)) continue;
      const offer = rungNamed(top, resident.plan);
      // Of a plan that it has no longer.
      if (offer.plan !== resident.plan || wholeBytes(offer) !== resident.bytes) continue;
      for (let rung: GpuOffer | undefined = offer.smaller; rung !== undefined; rung = rung.smaller) {
        if (rung.warmMs <= sheet.sloMs && wholeBytes(rung) > 0) {
          refuse(`something goes from GPU ${gpu}, and function ${functionIndex} could do with plan ${rung.plan}`);
        }
      }
    }
  }

  #load(functionIndex: number, gpu: number, order: LoadOrder, plan: string | undefined): void {
    const sheet = this.#sheets.get(functionIndex);
    const top = sheet?.gpus[gpu];
    if (!top) refuse(`function ${functionIndex} has no offer for GPU ${gpu}`);
    const offer = rungNamed(top, plan);
    if (offer.plan !== plan) refuse(`function ${functionIndex} has no plan ${plan}`);
    if (!this.#up[gpu]) refuse(`GPU ${gpu} is gone`);
    for (const { link } of order.way.transfers) if (!this.#up[link]) refuse(`the link of GPU ${link} is gone`);
    if (!offer.ways.includes(order.way)) refuse('a way that the function does not offer');
    if (this.#loading[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} is being loaded already`);
    const before = this.#resident[gpu]!.get(functionIndex)?.prefix ?? 0;
    if (before !== order.prefix) refuse(`function ${functionIndex} has ${before} layers there, not ${order.prefix}`);
    this.#resident[gpu]!.set(functionIndex, { prefix: wholePrefix(offer), bytes: wholeBytes(offer), plan });
    this.#loading[gpu]!.set(functionIndex, order);
    this.#plan(
      this.#nowMs + order.way.transfers[0].ms[order.prefix]! * this.#options.stretch(),
      { kind: 'loaded', gpu, functionIndex },
      () => this.#loading[gpu]!.get(functionIndex) === order,
    );
  }

  #evict({ functionIndex, gpu, prefix, bytes, cause }: Action & { kind: 'evict' }): void {
    if (this.#running[gpu]?.functionIndex === functionIndex) refuse(`function ${functionIndex} runs on GPU ${gpu}`);
    if (this.#loading[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} is being loaded to GPU ${gpu}`);
    if (this.#growing[gpu]!.has(functionIndex)) refuse(`function ${functionIndex} is growing on GPU ${gpu}`);
    if (cause === 'capacity' || cause === 'trim' || cause === 'migration') {
      this.evictions++;
      this.#checkShrunk(gpu);
    }
    const resident = this.#resident[gpu]!.get(functionIndex);
    if (resident === undefined || prefix >= resident.prefix) refuse(`function ${functionIndex} has not that much`);
    resident.prefix = prefix;
    resident.bytes -= bytes;
    if (prefix === 0) this.#resident[gpu]!.delete(functionIndex);
    if (prefix === 0 && Math.abs(resident.bytes) > 1e-6) refuse(`${resident.bytes} bytes are left of nothing`);
  }

  #abandon(functionIndex: number, gpu: number): void {
    this.#loading[gpu]!.delete(functionIndex);
    this.#growing[gpu]!.delete(functionIndex);
    const running = this.#running[gpu];
    if (running?.functionIndex !== functionIndex) return;
    this.#running[gpu] = undefined;
    // To be placed again at once, as if it arrived.
    this.#invocations.get(running.invocation)!.state = 'arriving';
  }

  #offload(number: number): void {
    const invocation = this.#invocations.get(number)!;
    if (invocation.state !== 'arriving' && invocation.state !== 'waiting') {
      refuse(`invocation ${number} is to be offloaded, and is ${invocation.state}`);
    }
    invocation.state = 'offloaded';
    const { cpu } = this.#sheets.get(invocation.functionIndex)!;
    if (cpu === null) refuse(`function ${invocation.functionIndex} has no CPU pool`);
    this.#plan(
      this.#nowMs + cpu.latencyMs * this.#options.stretch(),
      { kind: 'finished', invocation: number },
      () => true,
    );
  }

  #plan(atMs: number, event: SchedulerEvent, isValid: () => boolean): void {
    this.#due.push({ atMs, order: this.#order++, event, isValid });
  }
}
