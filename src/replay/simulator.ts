/**
 * Replay on a virtual clock: the production scheduler decides, and its orders take as long as the offers say, with the
 * PCIe links shared as on the machine. The same trace and settings give the same outcomes.
 */
import {
  batchMs,
  variantNamed,
  Scheduler,
  type Action,
  type Decision,
  type Join,
  type LoadOrder,
  type Observation,
  type OfferSheet,
  type SchedulerEvent,
  type Start,
  type Given,
  type FunctionId,
  type GpuId,
  type InvocationId,
} from '../schedule/index.ts';
import {
  callOf,
  coldCpuPlacement,
  cpuPlacement,
  newFlight,
  newOutcome,
  nobodyElse,
  shedPlacement,
  workerPlacement,
  type Flight,
  type Mutable,
} from './simulator-flight.ts';
import { Acts, DueHeap, type Due } from './simulator-heap.ts';
import { SimulatedLists } from './simulator-lists.ts';
import { SimulatedLoads, type SimulatedLoad } from './simulator-loads.ts';
import { SimulatedSides } from './simulator-sides.ts';
import { SimulatedSwaps } from './simulator-swaps.ts';
import type { SimulatorOptions } from './simulator-options.ts';
import type { EvictionRecord, Outcome, OutcomePlacement, PlanChangeRecord, Trace, TraceInvocation } from './types.ts';

/** Throws RangeError for invocations that are not in order of arrival. */
export function runSimulation(trace: Trace, options: SimulatorOptions): void {
  const simulator = new Simulator(trace.functionNames, options);
  for (const invocation of trace.invocations()) simulator.arrive(invocation);
  simulator.finish();
}

/** A run or a link's transfer ends, the scheduler or a list is woken, a GPU changes, a read or a session is there. */
const dueKinds = ['finished', 'link', 'wake', 'gpu-change', 'staged', 'session', 'list', 'timer'] as const;
const wake: SchedulerEvent = { kind: 'wake' };
const anyCall: Join = { key: 'any', rows: 1 };

export class Simulator {
  readonly #options: SimulatorOptions;
  readonly #names: readonly string[];
  readonly #scheduler: Scheduler;
  readonly #due = new DueHeap(dueKinds);
  readonly #loads: SimulatedLoads;
  /** The heap entry that counts for a link; others are out of date. */
  readonly #linkDue: (number | undefined)[];
  readonly #sheets: (OfferSheet | undefined)[] = [];
  /** For functions whose calls are joined. */
  readonly #joins: (Join | undefined)[] = [];
  readonly #free: number[] = [];
  /** By invocation number. Numbers are reused, so there are as many as invocations under way at once. */
  readonly #flights: Flight[] = [];
  readonly #sides: SimulatedSides;
  readonly #lists = new SimulatedLists({
    began: (invocations, startMs, endMs) => {
      for (const invocation of invocations) {
        const flight = this.#flights[invocation]!;
        this.#begin(flight, startMs);
        flight.warmMs = endMs - startMs;
        flight.finishDue = this.#due.add(endMs, 'finished', invocation);
      }
      this.#swaps?.began(this.#flights[invocations[0]!]!.functionIndex, invocations.length);
    },
    wake: (atMs, functionIndex) => void this.#due.add(atMs, 'list', functionIndex),
    grow: (functionIndex) => this.#growOnDemand(functionIndex),
  });
  /** Undefined: no function's list follows its load. */
  #swaps: SimulatedSwaps | undefined;
  readonly #timers = new Acts();
  /** Reused placements. */
  readonly #gpuPlacements: readonly Readonly<Record<Start, OutcomePlacement>>[];
  /** By GPU, for runs that are abandoned. */
  readonly #running: (InvocationId | undefined)[];
  /** Reused for each event. */
  readonly #arrival: Mutable<SchedulerEvent & { kind: 'arrival' }> = {
    kind: 'arrival',
    invocation: 0,
    functionIndex: 0,
  };
  readonly #ended: Mutable<SchedulerEvent & { kind: 'finished' }> = {
    kind: 'finished',
    invocation: 0,
    observed: undefined,
  };
  /** Reused for each report. */
  readonly #outcome: Mutable<Outcome> = newOutcome();
  readonly #eviction: Mutable<EvictionRecord> = { atMs: NaN, from: 0, functionIndex: 0, bytes: 0, cause: 'capacity' };
  #nowMs = 0;
  #arrived = 0;

  constructor(names: readonly string[], options: SimulatorOptions) {
    const { gpus, policy, cpu, workers = null, host, gpuChanges = [] } = options;
    this.#names = names;
    this.#options = options;
    this.#scheduler = new Scheduler({
      gpus,
      policy,
      cpu,
      workers,
      ...(host && { host }),
      explains: false,
    });
    this.#sides = new SimulatedSides(host);
    this.#linkDue = gpus.map(() => undefined);
    this.#running = gpus.map(() => undefined);
    this.#loads = new SimulatedLoads(gpus, (link, dueMs) => {
      this.#linkDue[link] = dueMs === Infinity ? undefined : this.#due.add(dueMs, 'link', link);
    });
    this.#gpuPlacements = gpus.map((_, gpu) => ({
      warm: { kind: 'gpu', gpu, residency: 'warm' },
      partial: { kind: 'gpu', gpu, residency: 'partial' },
      cold: { kind: 'gpu', gpu, residency: 'cold' },
      disk: { kind: 'gpu', gpu, residency: 'disk' },
    }));
    for (const [index, { atMs }] of gpuChanges.entries()) this.#due.add(atMs, 'gpu-change', index);
    const filledWith = host?.filledWith ?? [];
    if (filledWith.length === 0) return;
    for (const { functionIndex } of filledWith) this.#addFunction(functionIndex);
    this.#tell({ kind: 'host-filled', functions: filledWith });
  }

  arrive({ arrivalMs, functionIndex, sloMs }: TraceInvocation): void {
    if (!(arrivalMs >= this.#nowMs)) {
      throw new RangeError(`invocation ${this.#arrived} arrives at ${arrivalMs} ms, before the one in front of it`);
    }
    this.advance(arrivalMs);
    this.#options.onArrival?.(functionIndex);
    if (this.#sheets[functionIndex] === undefined) this.#addFunction(functionIndex);
    const invocation = this.#free.pop() ?? this.#flights.push(newFlight()) - 1;
    const flight = this.#flights[invocation]!;
    flight.sequence = this.#arrived++;
    flight.functionIndex = functionIndex;
    flight.arrivalMs = arrivalMs;
    flight.sloMs = sloMs ?? this.#sheets[functionIndex]!.sloMs;
    flight.predictedEndMs = NaN;
    flight.begunMs = Infinity;
    flight.runMs = 0;
    flight.handedMs = 0;
    flight.warmMs = 0;
    flight.joinedMs = 0;
    flight.companions = nobodyElse;
    flight.placement = undefined;
    flight.finishDue = undefined;
    const event = this.#arrival;
    event.invocation = invocation;
    event.functionIndex = functionIndex;
    event.sloMs = sloMs;
    event.join = this.#joins[functionIndex];
    this.#tell(event);
  }

  /** Handles all events that are due until then. */
  advance(toMs: number): void {
    this.#handle(toMs);
    this.#nowMs = toMs;
  }

  /** Invocations that have arrived and not ended. */
  get underWay(): number {
    return this.#flights.length - this.#free.length;
  }

  /** Whether the function has layers on a GPU or a session on the CPU, loaded or being loaded. */
  isResident(functionIndex: Given<FunctionId>): boolean {
    if (this.#sheets[functionIndex] === undefined) return false;
    if (this.#sides.hasSession(functionIndex)) return true;
    return this.#options.gpus.some((_, gpu) => this.#scheduler.residentPrefix(functionIndex, gpu) > 0);
  }

  finish(): void {
    this.#swaps?.finish();
    this.#handle(Infinity);
  }

  #handle(toMs: number): void {
    for (let due = this.#due.take(toMs); due !== undefined; due = this.#due.take(toMs)) this.#next(due);
  }

  #next({ atMs, sequence, kind, number }: Due<(typeof dueKinds)[number]>): void {
    // What ends at another instant than was expected.
    if (kind === 'finished' && this.#flights[number]!.finishDue !== sequence) return;
    if (kind === 'link' && this.#linkDue[number] !== sequence) return;
    this.#nowMs = atMs;
    switch (kind) {
      case 'finished':
        this.#finished(number);
        break;
      case 'link':
        this.#arrivedOverLink(number);
        break;
      case 'staged':
        this.#sides.staged(number);
        this.#tell({ kind: 'staged', functionIndex: number });
        for (const load of this.#loads.staged(number, atMs)) this.#loaded(load);
        break;
      case 'session':
        this.#tell({ kind: 'session', functionIndex: number, bytes: this.#sheets[number]!.cpu!.bytes ?? 0 });
        break;
      case 'wake':
        this.#tell(wake);
        break;
      case 'list':
        this.#lists.decide(number, atMs);
        break;
      case 'timer':
        this.#timers.run(number);
        break;
      case 'gpu-change': {
        const { kind: change, gpu } = this.#options.gpuChanges![number]!;
        this.#tell({ kind: change, gpu });
      }
    }
  }

  #addFunction(functionIndex: Given<FunctionId>): void {
    let sheet = this.#options.sheetOf(functionIndex, this.#names[functionIndex] ?? String(functionIndex));
    // Without gaps: V8 turns an array with many gaps into a map.
    while (this.#sheets.length <= functionIndex) {
      this.#sheets.push(undefined);
      this.#joins.push(undefined);
    }
    const demand = sheet.cpu === null ? undefined : this.#options.demandOf?.(functionIndex);
    if (demand !== undefined) this.#lists.addOnDemand(functionIndex, demand);
    if (demand?.swaps !== undefined) {
      this.#swaps ??= this.#newSwaps();
      sheet = { ...sheet, cpu: this.#swaps.add(functionIndex, demand.swaps, sheet.cpu!, this.#nowMs) };
    }
    this.#sheets[functionIndex] = sheet;
    // All calls of a function have the same shapes, and one row.
    if (sheet.gpus.some((offer) => offer?.batches !== undefined)) this.#joins[functionIndex] = anyCall;
    this.#tell({ kind: 'function-added', functionIndex, sheet });
  }

  #newSwaps(): SimulatedSwaps {
    const { cores, cpu, observer } = this.#options;
    if (cores === undefined || cpu === null) throw new RangeError('lists that follow their load need cores');
    return new SimulatedSwaps(cores, cpu.cores, this.#lists, {
      later: (atMs, then) => void this.#due.add(atMs, 'timer', this.#timers.add(then)),
      reserve: (functionIndex, bytes) => {
        const hasRoom = this.#makeRoom(functionIndex, bytes, 'list');
        if (hasRoom) this.#sides.add(bytes);
        return hasRoom;
      },
      free: (bytes) => this.#sides.add(-bytes),
      placeChanged: (left, takenBytes) =>
        this.#tell({ kind: 'place-changed', place: 'cpu', to: { ...cpu, cores: left, takenBytes } }),
      sessions: (functionIndex, bytes, spares) => this.#tell({ kind: 'session', functionIndex, bytes, spares }),
      offered: (functionIndex, offer) => {
        const sheet = { ...this.#sheets[functionIndex]!, cpu: offer };
        this.#sheets[functionIndex] = sheet;
        this.#tell({ kind: 'sheet-changed', functionIndex, sheet });
      },
      idle: (functionIndex) => this.#tell({ kind: 'session-idle', functionIndex, isSpare: false }),
      changed: (record) => observer.listChange?.(record),
    });
  }

  // The scheduler's orders

  #tell(event: SchedulerEvent): void {
    const actions = this.#scheduler.handle(event, this.#nowMs);
    for (let at = 0; at < actions.length; at++) this.#carryOut(actions[at]!);
  }

  #beginLoad(functionIndex: Given<FunctionId>, gpu: Given<GpuId>, load: LoadOrder): void {
    const isBeingRead = this.#sides.isBeingRead(functionIndex);
    const shared = this.#sheets[functionIndex]!.gpus[gpu]!.shared;
    const base = shared !== undefined && load.prefix < shared.layers ? shared.base : undefined;
    this.#loads.begin(functionIndex, gpu, load, { isBeingRead, base }, this.#nowMs);
  }

  #carryOut(action: Action): void {
    switch (action.kind) {
      case 'run':
        this.#run(action);
        break;
      case 'load':
        this.#begin(this.#flights[action.invocation]!);
        this.#beginLoad(action.functionIndex, action.gpu, action.load);
        break;
      case 'evict':
        this.#tellEviction(action.functionIndex, action.gpu, action.bytes, action.cause);
        break;
      case 'wait':
        break;
      case 'wake':
        this.#due.add(action.atMs, 'wake', 0);
        break;
      case 'grow':
        this.#changedPlan(action.functionIndex, 'larger');
        this.#loads.begin(action.functionIndex, action.gpu, action.load, { isGrowth: true }, this.#nowMs);
        break;
      case 'shrink':
        // Freeing memory takes no time.
        this.#changedPlan(action.functionIndex, 'smaller');
        break;
      case 'abandon':
        this.#abandon(action.functionIndex, action.gpu);
        break;
      case 'run-beside':
        this.#runBeside(action);
        break;
      case 'make-session': {
        const { functionIndex } = action;
        const { cpu } = this.#sheets[functionIndex]!;
        const readyMs = this.#sides.makeSession(functionIndex, cpu!, this.#nowMs);
        this.#due.add(readyMs, 'session', functionIndex);
        this.#lists.onDemand(functionIndex)?.start(readyMs);
        break;
      }
      case 'evict-cpu': {
        const { functionIndex, bytes, isSpare = false, cause } = action;
        const ownBytes = this.#swaps?.close(functionIndex, isSpare, cause === 'idle', this.#nowMs);
        this.#sides.closeSession(functionIndex, ownBytes ?? bytes, isSpare);
        if (ownBytes === undefined) this.#lists.onDemand(functionIndex)?.give(isSpare ? 'one' : 'all');
        this.#tellEviction(functionIndex, 'cpu', bytes, cause);
        break;
      }
      case 'stage': {
        const { functionIndex, bytes } = action;
        this.#options.observer.stage?.({ atMs: this.#nowMs, functionIndex, bytes });
        this.#due.add(this.#sides.stage(functionIndex, bytes, this.#nowMs), 'staged', functionIndex);
        break;
      }
      case 'evict-host':
        this.#tellEviction(action.functionIndex, 'host', action.bytes, action.cause);
        break;
      case 'shed':
        this.#end(action.invocation, shedPlacement);
        break;
      case 'fail':
        this.#end(action.invocation, { kind: 'failed', reason: action.reason });
        break;
    }
  }

  #tellEviction(
    functionIndex: Given<FunctionId>,
    from: EvictionRecord['from'],
    bytes: number,
    cause: EvictionRecord['cause'],
  ): void {
    const eviction = this.#eviction;
    eviction.atMs = this.#nowMs;
    eviction.from = from;
    eviction.functionIndex = functionIndex;
    eviction.bytes = bytes;
    eviction.cause = cause;
    this.#options.observer.eviction(eviction);
  }

  #changedPlan(functionIndex: Given<FunctionId>, direction: PlanChangeRecord['direction']): void {
    this.#options.observer.planChange?.({ atMs: this.#nowMs, functionIndex, direction });
  }

  #run({ invocation, functionIndex, gpu, start, load, decision, plan, companions }: Action & { kind: 'run' }): void {
    const nowMs = this.#nowMs;
    const flight = this.#flights[invocation]!;
    const placements = this.#gpuPlacements[gpu]!;
    // Most are warm, and V8 is slow at a field whose name changes.
    const placement = start === 'warm' ? placements.warm : placements[start];
    this.#runs(flight, placement, decision);
    this.#running[gpu] = invocation;
    if (load !== null) this.#beginLoad(functionIndex, gpu, load);
    const top = this.#sheets[functionIndex]!.gpus[gpu]!;
    const loading = start === 'warm' ? undefined : this.#loads.of(functionIndex, gpu, top.shared?.base);
    const { warmMs: aloneMs, batches } = variantNamed(top, plan);
    let warmMs = aloneMs;
    if (companions !== undefined) {
      warmMs = batchMs(batches!, companions.length + 1);
      for (const companion of companions)
        this.#runs(this.#flights[companion.invocation]!, placement, companion.decision);
      flight.companions = companions.map((companion) => companion.invocation);
    }
    flight.warmMs = warmMs;
    flight.joinedMs = warmMs - aloneMs;
    if (loading === undefined) {
      flight.finishDue = this.#due.add(nowMs + warmMs, 'finished', invocation);
    } else {
      loading.invocation = invocation;
    }
  }

  #runs(flight: Flight, placement: OutcomePlacement, { chosenEndMs }: Decision): void {
    flight.predictedEndMs = chosenEndMs;
    this.#begin(flight);
    flight.runMs = this.#nowMs;
    flight.placement = placement;
  }

  #begin(flight: Flight, startMs = this.#nowMs): void {
    if (startMs < flight.begunMs) flight.begunMs = startMs;
  }

  #arrivedOverLink(link: Given<GpuId>): void {
    this.#linkDue[link] = undefined;
    const load = this.#loads.arrive(link, this.#nowMs);
    if (load !== undefined) this.#loaded(load);
  }

  #loaded(load: SimulatedLoad): void {
    const { functionIndex, gpu, invocation } = load;
    if (invocation !== undefined) {
      const flight = this.#flights[invocation]!;
      const endMs = Math.max(load.readyMs + flight.joinedMs, flight.runMs + flight.warmMs);
      flight.finishDue = this.#due.add(endMs, 'finished', invocation);
    }
    this.#tell({ kind: 'loaded', gpu, functionIndex });
  }

  #abandon(functionIndex: Given<FunctionId>, gpu: Given<GpuId>): void {
    this.#loads.abandon(functionIndex, gpu, this.#nowMs);
    const running = this.#running[gpu];
    const flight = running === undefined ? undefined : this.#flights[running]!;
    if (flight?.functionIndex !== functionIndex) return;
    flight.finishDue = undefined;
    flight.companions = nobodyElse;
    this.#tellBusy(gpu, flight);
  }

  #finished(invocation: Given<InvocationId>): void {
    const flight = this.#flights[invocation]!;
    const placement = flight.placement!;
    if (placement.kind === 'gpu') this.#tellBusy(placement.gpu, flight);
    if (placement.kind === 'cpu' && this.#swaps !== undefined) {
      const serviceMs = placement === coldCpuPlacement ? undefined : flight.warmMs;
      this.#swaps.answered(flight.functionIndex, flight.handedMs, serviceMs, this.#nowMs);
    }
    this.#end(invocation, placement);
    for (const companion of flight.companions) this.#end(companion, placement);
    this.#ended.invocation = invocation;
    this.#ended.observed = placement.kind === 'cpu' ? this.#observed(flight) : undefined;
    this.#tell(this.#ended);
  }

  #tellBusy(gpu: Given<GpuId>, { runMs }: Flight): void {
    this.#running[gpu] = undefined;
    this.#options.observer.busy(gpu, runMs, this.#nowMs);
  }

  /** On the CPU or at a worker: the scheduler has a lane or a slot for it. */
  #runBeside({ place, invocation, functionIndex, loads, decision }: Action & { kind: 'run-beside' }): void {
    const flight = this.#flights[invocation]!;
    const { cpu, others } = this.#sheets[functionIndex]!;
    flight.predictedEndMs = decision.chosenEndMs;
    let ms: number;
    const chosen = place === 'cpu' ? this.#swaps?.listOf(functionIndex) : undefined;
    // A list that was given up at this instant may be in the sheet still.
    const list = chosen === undefined ? cpu?.list : (chosen ?? undefined);
    if (place === 'cpu') {
      flight.handedMs = this.#nowMs;
      this.#swaps?.called(functionIndex, this.#nowMs);
    }
    if (place === 'cpu' && list !== undefined) {
      flight.placement = cpuPlacement;
      flight.runMs = this.#nowMs;
      this.#lists.add(functionIndex, list, callOf(invocation, flight), this.#nowMs);
      return;
    }
    const demand = place === 'cpu' ? this.#lists.onDemand(functionIndex) : undefined;
    if (demand !== undefined) {
      flight.placement = loads ? coldCpuPlacement : cpuPlacement;
      if (loads) demand.start(this.#sides.makeSession(functionIndex, cpu!, this.#nowMs));
      flight.runMs = Math.max(this.#nowMs, this.#sides.readyMs(functionIndex));
      demand.add(callOf(invocation, flight), this.#nowMs);
      return;
    }
    if (place === 'cpu') {
      flight.placement = loads ? coldCpuPlacement : cpuPlacement;
      ms = this.#sides.cpuMs(functionIndex, cpu!, loads, this.#nowMs);
    } else {
      flight.placement = workerPlacement;
      ms = this.#options.workers!.roundTripMs + (others?.[place]?.latencyMs ?? 0);
    }
    this.#begin(flight);
    flight.finishDue = this.#due.add(this.#nowMs + ms, 'finished', invocation);
  }

  /** One more instance of the function on demand. Returns when it will be ready; undefined: there is no room for it. */
  #growOnDemand(functionIndex: Given<FunctionId>): number | undefined {
    const cpu = this.#sheets[functionIndex]!.cpu!;
    const { bytes = 0 } = cpu;
    const { size } = this.#lists.onDemand(functionIndex)!;
    if (!this.#makeRoom(functionIndex, bytes, 'spare')) return undefined;
    const readyMs = this.#sides.makeSpare(cpu, this.#nowMs);
    if (bytes > 0) this.#tell({ kind: 'session', functionIndex, bytes: bytes * (size + 1), spares: size });
    return readyMs;
  }

  /** Whether there is room for so many more bytes of sessions on the CPU, which the scheduler is asked for. */
  #makeRoom(functionIndex: Given<FunctionId>, bytes: number, purpose: 'spare' | 'list'): boolean {
    const hasRoom = (): boolean => this.#sides.sessionBytes + bytes <= this.#options.cpu!.memoryBytes;
    if (!hasRoom()) this.#tell({ kind: 'room-wanted', functionIndex, bytes, purpose });
    return hasRoom();
  }

  /** What the scheduler learns of a run on the CPU. Others take what the offer says. */
  #observed({ functionIndex, runMs, warmMs }: Flight): Observation | undefined {
    if (this.#lists.onDemand(functionIndex) === undefined) return undefined;
    return { runMs: this.#nowMs - runMs, coreMs: warmMs };
  }

  #end(invocation: Given<InvocationId>, placement: OutcomePlacement): void {
    const { sequence, functionIndex, arrivalMs, begunMs, sloMs, predictedEndMs } = this.#flights[invocation]!;
    const outcome = this.#outcome;
    outcome.sequence = sequence;
    outcome.functionIndex = functionIndex;
    outcome.arrivalMs = arrivalMs;
    outcome.endMs = this.#nowMs;
    outcome.queueMs = Math.min(begunMs, this.#nowMs) - arrivalMs;
    outcome.sloMs = sloMs;
    outcome.placement = placement;
    outcome.predictedEndMs = Number.isNaN(predictedEndMs) ? undefined : predictedEndMs;
    this.#options.observer.outcome(outcome);
    this.#free.push(invocation);
  }
}
