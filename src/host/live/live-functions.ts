/** The functions that the scheduler knows, with what they are offered for at each place. */
import { checkLadder } from '../../schedule/index.ts';
import { Correction } from './correction.ts';
import { newFunction, offersOf, sheetOf, type LiveFunction } from './live-function.ts';
import type { LiveState, Scheduled } from './live-views.ts';
import type { FunctionPlans, JoinedSizes, OwnCause, ScheduledSettings } from './types.ts';

/** The offers beside the GPUs are asked for at most so often for a function. */
const refreshMs = 100;
/** They are told to the scheduler when a time has changed by this share. */
const worthTelling = 0.2;

export class LiveFunctions {
  readonly #state: LiveState;
  readonly #freeIndices: number[] = [];

  constructor(state: LiveState) {
    this.#state = state;
  }

  /** GPUs may be used for the function, by these plans. @throws RangeError where its plans are no ladder */
  offer({ key, settings }: Scheduled, plans: FunctionPlans, isPinned: boolean): void {
    for (const offer of plans.offers) checkLadder(key, offer);
    const fn = this.of(key, settings);
    // Other plans have another profile; what was observed of the old one says nothing of it.
    if (fn.plans !== plans) fn.correction = new Correction();
    fn.plans = plans;
    fn.offers = offersOf(fn);
    fn.settings = settings;
    fn.isPinned = isPinned;
    this.update(fn);
  }

  /** Its calls are joined in these sizes from now on; undefined: they run one by one. */
  join(key: string, joined: JoinedSizes | undefined): void {
    const fn = this.#state.functions.get(key);
    if (fn === undefined) return;
    fn.joined = joined;
    this.corrected(fn);
  }

  /** GPUs are not to be used for it any more. Resolves when what it has there is free. */
  async retract(key: string): Promise<void> {
    const fn = this.#state.functions.get(key);
    if (fn?.plans === undefined) {
      await fn?.withdrawal?.over;
      return;
    }
    fn.plans = undefined;
    fn.isPinned = false;
    await this.withdraw(fn, 'unload');
  }

  /** Frees what the function has on GPUs; it may be brought there again. Resolves when it is free. */
  async unload(key: string): Promise<void> {
    const fn = this.#state.functions.get(key);
    if (fn?.plans !== undefined) await this.withdraw(fn, 'unload');
  }

  /** Forgets a function; what waits for it has no place any more. */
  async remove(key: string): Promise<void> {
    const fn = this.#state.functions.get(key);
    if (fn === undefined) return;
    this.#state.functions.delete(key);
    fn.plans = undefined;
    await this.withdraw(fn, 'unload');
    this.#state.tell({ kind: 'function-removed', functionIndex: fn.index });
    fn.isRemoved = true;
    this.freeIfOver(fn);
  }

  freeIfOver(fn: LiveFunction): void {
    if (!fn.isRemoved || fn.outstanding > 0) return;
    this.#state.byIndex[fn.index] = undefined;
    this.#freeIndices.push(fn.index);
  }

  of(key: string, settings: ScheduledSettings): LiveFunction {
    const known = this.#state.functions.get(key);
    if (known !== undefined) return known;
    const index = this.#freeIndices.pop() ?? this.#state.byIndex.length;
    const fn = newFunction(index, key, settings, this.#state.gpus.length);
    this.#state.functions.set(key, fn);
    this.#state.byIndex[index] = fn;
    this.ask(fn);
    fn.sheet = sheetOf(fn, this.#state.gpus.length);
    this.#state.tell({ kind: 'function-added', functionIndex: index, sheet: fn.sheet });
    return fn;
  }

  /** What the places beside the GPUs offer now. Returns whether it is worth telling. */
  ask(fn: LiveFunction): boolean {
    const nowMs = this.#state.now();
    if (nowMs - fn.refreshedMs < refreshMs) return false;
    fn.refreshedMs = nowMs;
    const cpu = this.#state.options.cpuOffer(fn.key);
    const workers = this.#state.options.workersOffer?.(fn.key, fn.ownMs) ?? null;
    const isAlike =
      cpu?.cores === fn.cpu?.cores &&
      cpu?.slots === fn.cpu?.slots &&
      isClose(cpu?.latencyMs, fn.cpu?.latencyMs) &&
      isClose(cpu?.loadMs, fn.cpu?.loadMs) &&
      (workers === null) === (fn.workers === null) &&
      isClose(workers?.latencyMs, fn.workers?.latencyMs);
    if (isAlike) return false;
    fn.cpu = cpu;
    fn.workers = workers;
    return true;
  }

  update(fn: LiveFunction): void {
    fn.sheet = sheetOf(fn, this.#state.gpus.length);
    this.#state.tell({ kind: 'sheet-changed', functionIndex: fn.index, sheet: fn.sheet });
  }

  corrected(fn: LiveFunction): void {
    if (fn.plans === undefined) return;
    fn.offers = offersOf(fn);
    if (fn.withdrawal === undefined) this.update(fn);
  }

  /** Takes everything of the function from the GPUs: without an offer it goes as soon as nothing runs there. */
  async withdraw(fn: LiveFunction, cause: OwnCause): Promise<void> {
    const place = this.#state.place;
    if (place === undefined) return;
    if (fn.withdrawal === undefined) {
      const takeOut = async (): Promise<void> => {
        await place.quiet(fn.index);
        fn.withdrawal = undefined;
        if (fn.plans !== undefined && !fn.isRemoved) this.update(fn);
      };
      // The sheet has no GPUs from here on.
      fn.withdrawal = { cause, over: Promise.resolve() };
      this.update(fn);
      fn.withdrawal = { cause, over: takeOut() };
    }
    await fn.withdrawal.over;
  }
}

const isClose = (one: number | undefined, other: number | undefined): boolean =>
  one === other || (one !== undefined && other !== undefined && Math.abs(one - other) <= worthTelling * other);
