/**
 * A shell around the scheduler that trusts nothing: it keeps its own plain account of residency, carries actions out
 * after random durations, and throws at the first action that cannot be right.
 */
import {
  Scheduler,
  wholeBytes,
  type Action,
  type Join,
  type OfferSheet,
  type SchedulerEvent,
} from '../../src/schedule/index.ts';
import { ModelGpus } from './model-gpus.ts';
import { hostBlocksOf, hostBytesOf, ModelLedger, refuse, type ModelOptions, type ModelView } from './model-ledger.ts';
import { ModelSides } from './model-sides.ts';

export type { ModelInvocation, ModelOptions, ModelView } from './model-ledger.ts';

export class SchedulerModel {
  readonly scheduler: Scheduler;
  /** Every event and the resulting actions, as text. */
  readonly log: string[] = [];
  /** Each event with its time, to be given to another scheduler. */
  readonly told: { readonly event: SchedulerEvent; readonly nowMs: number }[] = [];
  readonly #ledger: ModelLedger;
  readonly #gpus: ModelGpus;
  readonly #sides: ModelSides;
  readonly #keepsLog: boolean;
  readonly #holds = new Map<number, { readonly ms: number; isHere: boolean }>();
  #arrived = 0;
  ended = 0;
  shed = 0;

  constructor(options: ModelOptions) {
    const { gpus, policy, cpu, workers = null, host } = options;
    const made = { gpus, policy, cpu, workers, ...(host && { host }) };
    this.scheduler = options.makeScheduler?.(made) ?? new Scheduler(made);
    this.#keepsLog = options.keepsLog ?? true;
    this.#ledger = new ModelLedger(options);
    this.#gpus = new ModelGpus(this.#ledger);
    this.#sides = new ModelSides(this.#ledger, this.#gpus);
  }

  get shrinks(): number {
    return this.#gpus.shrinks;
  }

  get growths(): number {
    return this.#gpus.growths;
  }

  get reads(): number {
    return this.#sides.reads;
  }

  get evictions(): number {
    return this.#gpus.evictions;
  }

  get companions(): number {
    return this.#gpus.companions;
  }

  get arrived(): number {
    return this.#arrived;
  }

  get nowMs(): number {
    return this.#ledger.nowMs;
  }

  has(functionIndex: number): boolean {
    return this.#ledger.sheets.has(functionIndex);
  }

  isUp(gpu: number): boolean {
    return this.#ledger.up[gpu]!;
  }

  setSheet(functionIndex: number, sheet: OfferSheet): void {
    const kind = this.#ledger.sheets.has(functionIndex) ? 'sheet-changed' : 'function-added';
    const before = this.#ledger.sheets.get(functionIndex);
    this.#ledger.sheets.set(functionIndex, sheet);
    if (before?.gpus.some((offer) => offer?.shared !== undefined) === true)
      this.#ledger.formerly.set(functionIndex, before);
    this.#gpus.changed(functionIndex);
    this.#tell({ kind, functionIndex, sheet });
  }

  /** So many of the function's bytes are executed from host memory from now on; `nothing`: its place forgets it. */
  divideHost(functionIndex: number, executed: number | 'nothing'): void {
    const sheet = this.#ledger.sheets.get(functionIndex);
    if (sheet === undefined || this.#ledger.options.host === undefined) return;
    if (executed === 'nothing') {
      this.setSheet(functionIndex, { ...sheet, gpus: sheet.gpus.map(() => null), hostBlocks: [] });
      return;
    }
    const bytes = hostBytesOf(sheet);
    // What loads nothing executes everything, and no other function does.
    if (!sheet.gpus.some((offer) => offer !== null && wholeBytes(offer) > 0)) return;
    const executedBytes = Math.min(executed, bytes - 1);
    this.setSheet(functionIndex, { ...sheet, hostBlocks: hostBlocksOf(bytes - executedBytes, executedBytes) });
  }

  removeFunction(functionIndex: number): void {
    const before = this.#ledger.sheets.get(functionIndex)!;
    if (before.gpus.some((offer) => offer?.shared !== undefined)) this.#ledger.formerly.set(functionIndex, before);
    this.#ledger.sheets.delete(functionIndex);
    this.#sides.making.delete(functionIndex);
    this.#tell({ kind: 'function-removed', functionIndex });
    this.#sides.removed(functionIndex);
  }

  arrive(functionIndex: number, join?: Join): void {
    const invocation = this.#arrived++;
    this.#ledger.invocations.set(invocation, {
      functionIndex,
      arrivalMs: this.#ledger.nowMs,
      order: invocation,
      join,
      state: 'arriving',
      place: undefined,
    });
    this.#tell({ kind: 'arrival', invocation, functionIndex, ...(join && { join }) });
    const { state } = this.#ledger.invocations.get(invocation)!;
    if (state === 'arriving') refuse(`nothing was decided about invocation ${invocation}`);
  }

  /** A waiting invocation leaves, chosen by its place among them; nothing happens if none waits. */
  depart(place: number): void {
    const waiting = [...this.#ledger.invocations].filter(([, { state }]) => state === 'waiting');
    const chosen = waiting[place % Math.max(1, waiting.length)];
    if (chosen === undefined) return;
    chosen[1].state = 'ended';
    this.ended++;
    this.#tell({ kind: 'departed', invocation: chosen[0] });
  }

  /** Refuses a run beside the GPUs or a shared one, chosen by its place among them. Returns whether there was one. */
  refuseRun(place: number): boolean {
    const joined = this.#gpus.running.flatMap((run) => (run && run.companions.length > 0 ? [run.invocation] : []));
    const running = [...this.#sides.onCpu.keys(), ...this.#sides.onWorkers.keys(), ...joined];
    const invocation = running[place % Math.max(1, running.length)];
    if (invocation === undefined) return false;
    this.#sides.ended(invocation);
    // To be placed again at once, as if they arrived.
    const { place: gpu } = this.#ledger.invocations.get(invocation)!;
    if (joined.includes(invocation)) this.#gpus.placedAnew(gpu as number);
    this.#ledger.invocations.get(invocation)!.state = 'arriving';
    this.#tell({ kind: 'refused', invocation });
    return true;
  }

  setGpu(gpu: number, isUp: boolean): void {
    if (this.#ledger.up[gpu] === isUp) return;
    this.#ledger.up[gpu] = isUp;
    this.#tell({ kind: isUp ? 'gpu-back' : 'gpu-lost', gpu });
    const isEmpty = this.#gpus.resident[gpu]!.size + this.#gpus.shared[gpu]!.size === 0;
    if (!isUp && (!isEmpty || this.#gpus.running[gpu] !== undefined)) {
      refuse(`GPU ${gpu} is gone, and something is still on it`);
    }
  }

  /** The process with all weights has ended, and a new one has come. */
  loseHost(): void {
    for (const gpu of this.#ledger.options.gpus.keys()) this.setGpu(gpu, false);
    this.#sides.hostLost();
    this.#tell({ kind: 'host-lost' });
    for (const gpu of this.#ledger.options.gpus.keys()) this.setGpu(gpu, true);
  }

  /** What becomes of the next read. */
  failRead(as: 'stage-refused' | 'stage-failed'): void {
    this.#sides.unread.push(as);
  }

  /** The place uses the function in host memory for so long, once it is there. */
  hold(functionIndex: number, ms: number): void {
    const isHeldBefore = this.#holds.has(functionIndex);
    if (!this.#ledger.sheets.has(functionIndex) || isHeldBefore) return;
    this.#holds.set(functionIndex, { ms, isHere: false });
    this.#tell({ kind: 'host-held', functionIndex, isHeld: true });
  }

  /** What is held and has come is let go after its time; what can never come, at once. */
  #settleHolds(): void {
    for (const [functionIndex, hold] of this.#holds) {
      const isHere = this.scheduler.isInHostMemory(functionIndex);
      const isHopeless = !this.scheduler.fitsHostMemory(functionIndex) || !this.#ledger.sheets.has(functionIndex);
      if (hold.isHere || (!isHere && !isHopeless)) continue;
      hold.isHere = true;
      const atMs = this.#ledger.nowMs + (isHopeless ? 0 : hold.ms);
      this.#ledger.plan(atMs, { kind: 'host-held', functionIndex, isHeld: false }, () => true);
    }
  }

  /** The place needs room on a GPU for something of its own. */
  makeRoom(gpu: number, bytes: number, spared: readonly number[]): void {
    const known = spared.filter((functionIndex) => this.has(functionIndex));
    const before = new Map(known.map((functionIndex) => [functionIndex, this.#gpus.there(functionIndex, gpu)?.bytes]));
    const began = this.#gpus.begun;
    this.#tell({ kind: 'gpu-room-wanted', gpu, bytes, spared: known });
    // Calls may have taken the room, or shrunk what is spared.
    if (this.#gpus.begun !== began) return;
    for (const [functionIndex, there] of before)
      if (this.#gpus.there(functionIndex, gpu)?.bytes !== there)
        refuse(`function ${functionIndex} goes, and is spared`);
    const { capacityBytes } = this.#ledger.options.gpus[gpu]!;
    const idle = this.#gpus.idle(gpu, known);
    if (capacityBytes - this.scheduler.residentBytes(gpu) < bytes && idle !== undefined)
      refuse(`GPU ${gpu} is to have ${bytes} bytes free, and keeps ${idle}`);
  }

  /** Host memory has another size, in which all fits sooner or later. */
  resizeHost(capacityBytes: number): void {
    this.#ledger.hostBytes = capacityBytes;
    this.#tell({ kind: 'host-changed', capacityBytes });
  }

  /** Lets time pass. */
  pass(durationMs: number): void {
    const untilMs = this.#ledger.nowMs + durationMs;
    for (let next = this.#ledger.takeDue(untilMs); next !== undefined; next = this.#ledger.takeDue(untilMs)) {
      this.#ledger.nowMs = Math.max(this.#ledger.nowMs, next.atMs);
      if (next.isValid()) this.#happen(next.event);
    }
    if (untilMs < Infinity) this.#ledger.nowMs = untilMs;
  }

  /** Brings everything to its end. */
  drain(): void {
    this.pass(Infinity);
    for (const [invocation, { state }] of this.#ledger.invocations) {
      if (state !== 'ended') refuse(`invocation ${invocation} never ended: it is ${state}`);
    }
    for (const functionIndex of this.#holds.keys()) refuse(`function ${functionIndex} is held, and never came`);
  }

  #happen(event: SchedulerEvent): void {
    if (event.kind === 'finished') {
      const invocation = this.#ledger.invocations.get(event.invocation)!;
      if (invocation.state === 'running') this.ended += this.#gpus.finished(invocation.place as number);
      this.#sides.ended(event.invocation);
      invocation.state = 'ended';
      this.ended++;
    } else if (event.kind === 'staged' || event.kind === 'stage-refused' || event.kind === 'stage-failed') {
      this.#sides.staged(event.functionIndex, event.kind === 'staged');
    } else if (event.kind === 'loaded') {
      this.#gpus.loaded(event.functionIndex, event.gpu);
    } else if (event.kind === 'session') {
      this.#sides.making.delete(event.functionIndex);
    } else if (event.kind === 'host-held') {
      this.#holds.delete(event.functionIndex);
    }
    this.#tell(event);
  }

  #tell(event: SchedulerEvent): void {
    this.told.push({ event, nowMs: this.#ledger.nowMs });
    const actions = this.scheduler.handle(event, this.#ledger.nowMs);
    if (this.#keepsLog)
      this.log.push(
        `${this.#ledger.nowMs} ${JSON.stringify({ ...event, sheet: undefined })} => ${JSON.stringify(actions)}`,
      );
    for (const action of actions) this.#do(action);
    for (const [gpu, { capacityBytes }] of this.#ledger.options.gpus.entries()) {
      let bytes = 0;
      for (const resident of this.#gpus.resident[gpu]!.values()) bytes += resident.bytes;
      for (const shared of this.#gpus.shared[gpu]!.values()) bytes += shared.bytes;
      if (bytes > capacityBytes) refuse(`GPU ${gpu} holds ${bytes} bytes of ${capacityBytes}`);
      if (Math.abs(bytes - this.scheduler.residentBytes(gpu)) > 1e-6) {
        refuse(`GPU ${gpu} holds ${bytes} bytes, and the scheduler counts ${this.scheduler.residentBytes(gpu)}`);
      }
    }
    this.#settleHolds();
    for (const functionIndex of this.#ledger.sheets.keys())
      if (this.scheduler.hostWait(functionIndex) === 'nobody')
        refuse(`something waits for function ${functionIndex}, which nobody reads`);
    this.#ledger.options.watch?.(this.#view());
  }

  #view(): ModelView {
    return {
      nowMs: this.#ledger.nowMs,
      options: this.#ledger.options,
      invocations: this.#ledger.invocations,
      sheets: this.#ledger.sheets,
      isUp: this.#ledger.up,
      running: this.#gpus.running,
      there: (functionIndex, gpu) => this.#gpus.there(functionIndex, gpu),
      isLoading: (functionIndex, gpu) => this.#gpus.isLoading(functionIndex, gpu),
      inHost: this.#ledger.inHost,
      unread: this.#ledger.unread,
      onCpu: this.#sides.onCpu,
      onWorkers: this.#sides.onWorkers,
      making: this.#sides.making,
    };
  }

  #do(action: Action): void {
    switch (action.kind) {
      case 'run':
        this.#gpus.run(action);
        break;
      case 'load':
        if (this.#ledger.invocations.get(action.invocation)?.state === 'ended') refuse('a load for one that has ended');
        this.#gpus.load(action.functionIndex, action.gpu, action.load, action.plan);
        break;
      case 'grow':
        this.#gpus.grow(action);
        break;
      case 'shrink':
        this.#gpus.shrink(action);
        break;
      case 'evict':
        this.#gpus.evict(action);
        break;
      case 'abandon':
        this.#gpus.abandon(action.functionIndex, action.gpu);
        break;
      case 'run-beside':
        if (action.place === 'cpu') this.#sides.runOnCpu(action);
        else this.#sides.runOnWorkers(action.invocation);
        break;
      case 'make-session':
        this.#sides.makeSession(action.functionIndex);
        break;
      case 'evict-cpu':
        this.#sides.evictSession(action.functionIndex, action.bytes);
        break;
      case 'stage':
        this.#sides.stage(action.functionIndex, action.bytes);
        break;
      case 'evict-host':
        this.#sides.evictFromHost(action);
        break;
      case 'wait': {
        const invocation = this.#ledger.invocations.get(action.invocation)!;
        if (invocation.state !== 'arriving' && invocation.state !== 'waiting') {
          refuse(`invocation ${action.invocation} is to wait, and is ${invocation.state}`);
        }
        if (typeof action.place === 'number' && !this.#ledger.up[action.place]) {
          refuse(`invocation ${action.invocation} is to wait for a GPU that is gone`);
        }
        invocation.state = 'waiting';
        invocation.place = action.place;
        break;
      }
      case 'wake':
        this.#ledger.plan(action.atMs, { kind: 'wake' }, () => true);
        break;
      case 'shed':
      case 'fail': {
        const invocation = this.#ledger.invocations.get(action.invocation)!;
        if (invocation.state !== 'arriving' && invocation.state !== 'waiting') {
          refuse(`invocation ${action.invocation} cannot end twice: it is ${invocation.state}`);
        }
        invocation.state = 'ended';
        this.ended++;
        if (action.kind !== 'shed') break;
        this.shed++;
        // A client is told this instant, as the reason why its call was refused.
        const { sloMs = -Infinity } = this.#ledger.sheets.get(invocation.functionIndex) ?? {};
        if (action.predictedEndMs < invocation.arrivalMs + sloMs)
          refuse(`invocation ${action.invocation} is shed for an end in time, ${action.predictedEndMs}`);
        break;
      }
    }
  }
}
