/** Invocations from the call to their end: waiting, running on a GPU, or running elsewhere under a lease. */
import {
  named,
  type Action,
  type Decision,
  type FailReason,
  type InvocationId,
  type SideId,
} from '../schedule/index.ts';
import { CpuError } from '../cpu/index.ts';
import type { Tensor } from '../tensor/index.ts';
import { CallerWatch, smoothed, timerMsMax } from '../tools/index.ts';
import type { GpuCall, GpuRunEnd } from './gpu-place.ts';
import { offersOf, type LiveFunction, type Pending } from './live-function.ts';
import type { LiveFunctions } from './live-functions.ts';
import type { LiveState, Scheduled } from './live-views.ts';
import {
  gpuErrorCode,
  leftError,
  toSchedulerPriority,
  type InvocationTerms,
  type Lease,
  type OtherLease,
  type Placed,
  type RanElsewhere,
  type RanOnGpu,
  type Why,
} from './types.ts';
import { cpuRefusal } from './words.ts';

/** Shorter is left out: invocations that all have the SLOs of their functions are decided faster. */
const countedMsMin = 1;

export class Invocations {
  readonly #state: LiveState;
  readonly #functions: LiveFunctions;
  readonly #freeIds: InvocationId[] = [];
  readonly #callers = new CallerWatch<Pending>((pending) => this.#depart(pending, 'cancelled'));
  isClosed = false;

  constructor(state: LiveState, functions: LiveFunctions) {
    this.#state = state;
    this.#functions = functions;
  }

  /**
   * Asks for a place. Resolves when the invocation has run on a GPU, or may run elsewhere.
   *
   * @param tensors undefined if the model cannot run before its handler
   * @throws CpuError `cancelled`, `deadline-passed`, `queue-full`
   */
  submit(
    { key, settings }: Scheduled,
    tensors: readonly Tensor[] | undefined,
    terms: InvocationTerms = {},
  ): Promise<Placed> {
    if (this.isClosed) return Promise.resolve({ kind: 'nowhere', refusals: ['the host is stopping'] });
    if (terms.signal?.aborted === true) return Promise.reject(leftError('cancelled'));
    if (terms.deadlineMs !== undefined && terms.deadlineMs <= this.#state.now())
      return Promise.reject(leftError('deadline-passed'));
    const fn = this.#functions.of(key, settings);
    const { waitingMax = Infinity } = this.#state.options;
    if (fn.waiting >= waitingMax) {
      return Promise.reject(new CpuError('queue-full', `${fn.waiting} invocations of ${key} wait already`));
    }
    const hasSettings = fn.settings !== settings;
    fn.settings = settings;
    const isForgotten = fn.plans !== undefined && fn.correction.called(this.#state.now());
    if (isForgotten) fn.offers = offersOf(fn);
    if (this.#functions.ask(fn) || hasSettings || isForgotten) this.#functions.update(fn);
    return this.#enter(fn, tensors, terms);
  }

  /** Runs it on a GPU even if other places promise more, so that its weights are there afterwards. */
  async runOnGpu(version: Scheduled, tensors: readonly Tensor[]): Promise<RanOnGpu | RanElsewhere> {
    const fn = this.#functions.of(version.key, version.settings);
    await fn.withdrawal?.over;
    if (fn.plans === undefined || this.#state.place?.isUp !== true) return { kind: 'elsewhere', refusal: undefined };
    const ended = await this.#enter(fn, tensors, { isForGpus: true });
    switch (ended.kind) {
      case 'gpu':
        return ended;
      case 'cpu':
      case 'other':
        ended.done();
        return { kind: 'elsewhere', refusal: ended.why.refusals.at(-1) };
      case 'nowhere':
        return { kind: 'elsewhere', refusal: ended.refusals.at(-1) };
      case 'shed':
        return { kind: 'elsewhere', refusal: undefined };
    }
  }

  #enter(fn: LiveFunction, tensors: readonly Tensor[] | undefined, terms: InvocationTerms): Promise<Placed> {
    const arrivalMs = this.#state.now();
    fn.lastUseMs = arrivalMs;
    fn.outstanding++;
    return new Promise((resolve, reject) => {
      const id = this.#freeIds.pop() ?? named<InvocationId>(this.#state.pending.length);
      const pending: Pending = {
        id,
        fn,
        tensors,
        arrivalMs,
        sinceMs: terms.sinceMs ?? arrivalMs,
        terms,
        resolve,
        reject,
        stage: 'waiting',
        home: undefined,
        settle: undefined,
        isCounted: false,
        hasWaited: false,
        isBehindLoad: false,
        refusals: [],
        isKeptOff: false,
        refusedBy: noPlaces,
        invalid: undefined,
      };
      this.#state.pending[id] = pending;
      this.arrive(pending);
    });
  }

  arrive(pending: Pending): void {
    const { id, fn, terms } = pending;
    const passedMs = this.#state.now() - pending.sinceMs;
    const hasOwnSlo = terms.sloMs !== undefined || (passedMs >= countedMsMin && terms.isForGpus !== true);
    pending.home = this.#state.scheduler;
    this.#state.tell({
      kind: 'arrival',
      invocation: id,
      functionIndex: fn.index,
      sloMs: hasOwnSlo ? Math.max(0, sloOf(pending) - passedMs) : undefined,
      priority: terms.priority === undefined ? undefined : toSchedulerPriority(terms.priority),
      isKeptOffGpus: terms.keptOff !== undefined || pending.isKeptOff,
      isForGpus: pending.isKeptOff ? undefined : terms.isForGpus,
      // An invocation that breaks a run takes its companions along only once.
      join: pending.refusals.length === 0 ? terms.join : undefined,
    });
    if (pending.stage === 'waiting' && pending.settle === undefined) this.#watch(pending);
  }

  /** Ends the wait when the caller leaves or a deadline passes. */
  #watch(pending: Pending): void {
    const { signal, deadlineMs } = pending.terms;
    if (signal === undefined && deadlineMs === undefined) return;
    const leftMs = deadlineMs === undefined ? Infinity : Math.max(0, Math.ceil(deadlineMs - this.#state.now()));
    // A deadline that no timer reaches counts as none.
    const timer = leftMs > timerMsMax ? undefined : setTimeout(() => this.#depart(pending, 'deadline-passed'), leftMs);
    if (signal !== undefined) this.#callers.add(signal, pending);
    pending.settle = (): void => {
      clearTimeout(timer);
      if (signal !== undefined) this.#callers.delete(signal, pending);
      pending.settle = undefined;
    };
  }

  #depart(pending: Pending, why: 'cancelled' | 'deadline-passed'): void {
    if (pending.stage !== 'waiting') return;
    if (pending.home === this.#state.scheduler) this.#state.tell({ kind: 'departed', invocation: pending.id });
    this.#end(pending);
    pending.reject(leftError(why));
  }

  /** The scheduler makes it wait. */
  wait(invocation: InvocationId): void {
    const pending = this.#state.pending[invocation];
    if (pending === undefined) return;
    pending.stage = 'waiting';
    if (!pending.isCounted) pending.fn.waiting++;
    pending.isCounted = true;
    pending.hasWaited = true;
    if (pending.fn.loadingRuns > 0) pending.isBehindLoad = true;
    pending.terms.stages?.enter(pending.fn.loadingRuns > 0 ? 'load' : 'turn');
  }

  shed({ invocation, predictedEndMs, trialMs = -Infinity }: Action & { kind: 'shed' }): void {
    const pending = this.#state.pending[invocation];
    if (pending === undefined) return;
    this.#end(pending);
    const [predictedMs, sloMs] = [predictedEndMs - pending.sinceMs, sloOf(pending)];
    // While a call of the function is tried, it is not known when the next one is.
    const untilTrialMs = trialMs === Infinity ? 0 : trialMs - this.#state.now();
    pending.resolve({ kind: 'shed', predictedMs, sloMs, retryMs: Math.max(predictedMs - sloMs, untilTrialMs) });
  }

  fail(invocation: InvocationId, reason: FailReason): void {
    const pending = this.#state.pending[invocation];
    if (pending === undefined) return;
    this.#end(pending);
    const refusal = reason === 'removed' ? 'the function was removed' : this.#whyNotOnCpu(pending);
    if (refusal !== undefined) pending.refusals.push(refusal);
    pending.resolve({ kind: 'nowhere', refusals: pending.refusals });
  }

  /** What has refused it already is the reason otherwise. */
  #whyNotOnCpu({ fn, refusals, terms }: Pending): string | undefined {
    const { cpu } = this.#state;
    if (cpu === null || fn.cpu === null || terms.isForGpus === true || refusals.length > 0) return undefined;
    return cpuRefusal(fn.key, fn.cpu, cpu);
  }

  /** It waits no more. */
  #begin(pending: Pending): void {
    pending.stage = 'running';
    pending.settle?.();
    this.#uncount(pending);
  }

  #uncount(pending: Pending): void {
    if (pending.isCounted) pending.fn.waiting--;
    pending.isCounted = false;
  }

  #end(pending: Pending): void {
    pending.stage = 'over';
    pending.settle?.();
    this.#uncount(pending);
    this.#state.pending[pending.id] = undefined;
    this.#freeIds.push(pending.id);
    pending.fn.outstanding--;
    if (pending.fn.isRemoved) this.#functions.freeIfOver(pending.fn);
  }

  #finish(pending: Pending): void {
    if (pending.home === this.#state.scheduler) this.#state.tell({ kind: 'finished', invocation: pending.id });
    this.#end(pending);
  }

  /** The place could not run it: asks for another. @param others that shared its run; the scheduler knows that */
  #refuse(pending: Pending, others: readonly Pending[] = []): void {
    const all = [pending, ...others];
    for (const each of all) each.stage = 'waiting';
    if (pending.home === this.#state.scheduler) this.#state.tell({ kind: 'refused', invocation: pending.id });
    else for (const each of all) this.arrive(each);
    for (const each of all) if (each.stage === 'waiting' && each.settle === undefined) this.#watch(each);
  }

  startOnGpu(action: Extract<Action, { kind: 'run' }>): void {
    const members: Pending[] = [];
    const calls: GpuCall[] = [];
    for (const { invocation, decision } of [action, ...(action.companions ?? [])]) {
      const pending = this.#state.pending[invocation];
      if (pending === undefined) {
        this.#state.options.onDefect?.(`the scheduler runs invocation ${invocation}, which nobody waits for`);
        continue;
      }
      const { tensors = [], arrivalMs } = pending;
      members.push(pending);
      calls.push({ tensors, arrivalMs, why: whyOf(pending, decision, action.predictedEndMs) });
    }
    const [first, ...others] = members;
    const { place } = this.#state;
    if (first === undefined || place === undefined) return;
    for (const pending of members) {
      this.#begin(pending);
      pending.terms.stages?.enter(action.load === null ? 'model' : 'load');
    }
    // Another GPU would find the input just as invalid.
    if (others.length === 0 && (first.tensors === undefined || first.invalid !== undefined)) {
      this.#loadOnly(action, first);
      return;
    }
    this.#state.tally.starts[action.start]++;
    void place.run(action, first.fn, calls, {
      laneFree: () => this.#laneFree(action, members),
      ended: (end) => this.#gpuRunEnded(action, members, end),
    });
  }

  /**
   * The function became available on GPUs meanwhile, but the model's input is unknown, or a GPU has found it invalid: it
   * is placed again, beside the GPUs. A GPU that kept it meanwhile could be lost with it, and it would be placed twice.
   */
  #loadOnly({ gpu, functionIndex, load, plan, ...run }: Extract<Action, { kind: 'run' }>, pending: Pending): void {
    if (load !== null)
      void this.#state.place?.load({ ...run, kind: 'load', gpu, functionIndex, load, plan }, pending.fn);
    pending.stage = 'waiting';
    pending.isKeptOff = true;
    this.#state.tell({ kind: 'finished', invocation: pending.id });
    this.arrive(pending);
  }

  /** For the scheduler the run is over, and the next one is ordered while the outputs are on their way. */
  #laneFree(
    { gpu, functionIndex, load, invocation }: Extract<Action, { kind: 'run' }>,
    members: readonly Pending[],
  ): void {
    if (load !== null) this.#state.tell({ kind: 'loaded', gpu, functionIndex });
    const isKnown = members[0]!.home === this.#state.scheduler;
    for (const pending of members) pending.home = undefined;
    if (isKnown) this.#state.tell({ kind: 'finished', invocation });
  }

  #gpuRunEnded(
    { gpu, functionIndex, load }: Extract<Action, { kind: 'run' }>,
    members: readonly Pending[],
    end: GpuRunEnd,
  ): void {
    // The scheduler has placed the invocations elsewhere.
    if (end.kind === 'abandoned') return;
    const [first, ...others] = members;
    const { fn } = first!;
    if (end.kind === 'ran') {
      this.#state.options.onGpuReport?.(fn.key, { kind: 'run succeeded' });
      for (const [call, pending] of members.entries()) {
        this.#end(pending);
        pending.resolve(end.ran[call]!);
      }
      return;
    }
    if (end.kind === 'unanswered') {
      this.#state.options.onGpuReport?.(fn.key, { kind: 'run succeeded' });
      for (const pending of members) {
        this.#end(pending);
        pending.reject(end.error);
      }
      return;
    }
    const isUnderWay = first!.home === this.#state.scheduler;
    if (load !== null && isUnderWay) this.#state.tell({ kind: 'loaded', gpu, functionIndex });
    const { error } = end;
    const isInvalid = gpuErrorCode(error) === 'invalid';
    for (const pending of members) {
      pending.refusals.push(`gpu${gpu} failed: ${error instanceof Error ? error.message : String(error)}`);
      if (isInvalid) pending.invalid = error;
    }
    if (!isInvalid) this.#state.options.onGpuReport?.(fn.key, { kind: 'run failed', error });
    // How much of the load has arrived is unknown; other calls that wait for it would fail the same way.
    if (!isInvalid || load !== null) void this.#functions.withdraw(fn, 'failed-run');
    this.#refuse(first!, others);
  }

  lease(action: Extract<Action, { kind: 'run-beside' }>): void {
    const pending = this.#state.pending[action.invocation];
    if (pending === undefined) return;
    this.#begin(pending);
    const { place } = action;
    const why = whyOf(pending, action.decision, action.predictedEndMs);
    // A session that was never loaded has no load time for the scheduler.
    const isLoading = place === 'cpu' && (action.loads || pending.fn.session.bytes === 0);
    this.#give(pending, place, place === 'cpu' ? why : this.#besideCpu(pending, why), isLoading);
  }

  /** Another place was chosen over the CPU at least. */
  #besideCpu(pending: Pending, why: Why): Why {
    if (why.otherPlace !== undefined) return why;
    const endMs = this.#state.scheduler.predictEnd(pending.fn.index, 'cpu', this.#state.now());
    return endMs === Infinity ? why : { ...why, otherPlace: 'cpu', otherMs: endMs - pending.sinceMs };
  }

  /**
   * The scheduler only remembers the last place that refused an invocation; earlier ones are not asked a second time.
   */
  #give(pending: Pending, chosen: SideId, why: Why, isLoading: boolean): void {
    const { fn } = pending;
    const place = this.#takes(pending, chosen) ? chosen : this.#state.sides.find((each) => this.#takes(pending, each));
    if (place === undefined) {
      this.#finish(pending);
      pending.resolve({ kind: 'nowhere', refusals: pending.refusals });
      return;
    }
    let isOver = false;
    if (isLoading) fn.loadingRuns++;
    const waitedMs = pending.hasWaited ? this.#state.now() - pending.arrivalMs : 0;
    const isHere = place === 'cpu';
    const loadMs = isHere && pending.isBehindLoad ? Math.min(waitedMs, fn.cpuLoadMs) : 0;
    const queueMs = waitedMs - loadMs;
    const done: Lease['done'] = (observed) => {
      if (isOver) return;
      isOver = true;
      // If another place answers it, the input was not the cause.
      const { invalid } = pending;
      if (observed !== undefined && invalid !== undefined)
        this.#state.options.onGpuReport?.(fn.key, { kind: 'run failed', error: invalid });
      if (isLoading) fn.loadingRuns--;
      const { runMs, loadMs: observedLoadMs } = observed ?? {};
      if (isHere && observedLoadMs !== undefined) fn.cpuLoadMs = observedLoadMs;
      if (isHere && runMs !== undefined) fn.ownMs = smoothed(fn.ownMs, runMs);
      const isKnown = pending.home === this.#state.scheduler;
      if (isKnown) this.#state.tell({ kind: 'finished', invocation: pending.id, observed });
      this.#end(pending);
    };
    // Both are written out: a spread in a literal would cost each call some microseconds.
    if (isHere) {
      pending.resolve({ kind: 'cpu', queueMs, loadMs, why, done });
      return;
    }
    const elsewhere: OtherLease['elsewhere'] = (refusal) =>
      new Promise((resolve, reject) => {
        if (isOver) return reject(new Error('the invocation has ended'));
        isOver = true;
        pending.refusals.push(refusal);
        pending.refusedBy = [...pending.refusedBy, place];
        pending.resolve = resolve;
        pending.reject = reject;
        this.#refuse(pending);
      });
    pending.resolve({ kind: 'other', place, queueMs, loadMs, why, done, elsewhere });
  }

  #takes({ fn, refusedBy }: Pending, place: SideId): boolean {
    if (refusedBy.includes(place)) return false;
    return place === 'cpu' ? fn.cpu !== null : Boolean(fn.others[place]) && this.#state.laneCount(place) > 0;
  }
}

/** Most calls are refused by no place. */
const noPlaces: readonly SideId[] = [];

const sloOf = ({ terms, fn }: Pending): number => terms.sloMs ?? fn.settings.sloMs;

/** A copy: the scheduler overwrites the decision when the invocation's number is used again. */
function whyOf(pending: Pending, { reason, otherPlace, otherEndMs }: Decision, predictedEndMs?: number): Why {
  const { sinceMs, refusals, terms } = pending;
  const predictedMs = predictedEndMs === undefined ? undefined : predictedEndMs - sinceMs;
  const otherMs = otherEndMs - sinceMs;
  return { reason, predictedMs, otherPlace, otherMs, sloMs: sloOf(pending), refusals, keptOff: terms.keptOff };
}
