/** The functions that the scheduler knows, with their offers for each place. */
import { isAlikeOffer } from '../cpu/index.ts';
import { checkVariants, isClose, named, type FunctionId, type SideId, type SideOffer } from '../schedule/index.ts';
import { Correction } from './correction.ts';
import { hostBlocksOf, LiveFunction, plannedLayers, offersOf, sheetOf, type FunctionLayer } from './live-function.ts';
import type { LiveState, Scheduled } from './live-views.ts';
import { sharingPlans } from './shared-plans.ts';
import type { FunctionPlans, JoinedSizes, OwnCause, ScheduledSettings } from './types.ts';

/** A function's offers are corrected, and those beside the GPUs asked for, at most this often. */
const refreshMs = 100;

export class LiveFunctions {
  readonly #state: LiveState;
  readonly #freeIndices: FunctionId[] = [];

  constructor(state: LiveState) {
    this.#state = state;
  }

  /** The function may use GPUs, by these plans. @throws RangeError for plans that are no valid list of variants */
  offer({ key, settings }: Scheduled, plans: FunctionPlans, isPinned: boolean): void {
    for (const offer of plans.offers) checkVariants(key, offer);
    const fn = this.of(key, settings);
    // Other plans have another profile; the old observations say nothing about it.
    if (fn.ownPlans !== plans) fn.correction = new Correction();
    fn.ownPlans = plans;
    fn.settings = settings;
    fn.isPinned = isPinned;
    this.#share(fn);
    this.#divide(fn);
    this.update(fn);
  }

  /** Finds out what it shares with others. Those that share other layers now are told of first: they have them already. */
  #share(fn: LiveFunction): void {
    const others = this.#state.families.set(fn, plannedLayers(fn));
    for (const other of others) {
      this.#divide(other);
      this.update(other);
    }
  }

  /** Names its layers as they are shared now. */
  #divide(fn: LiveFunction): void {
    fn.shared = (fn.ownPlans?.offers ?? []).map((_, gpu) => this.#state.families.on(fn, gpu));
    for (const shared of fn.shared) if (shared !== undefined) fn.sharedLayers.set(shared.base, shared.loaded);
    fn.plans = fn.ownPlans && sharingPlans(fn.ownPlans, fn.shared);
    fn.offers = offersOf(fn);
    if (fn.hostBlocks !== undefined) fn.hostBlocks = hostBlocksOf(fn);
  }

  /** The GPU process knows the function; all its weights are on disk. @param layers default: as before */
  registered({ key, settings }: Scheduled, layers?: readonly FunctionLayer[]): void {
    // The process has ended since it said so, and the next one is told all of them anew.
    if (this.#state.host?.place.isUp === false) return;
    const fn = this.of(key, settings);
    fn.layers = layers ?? fn.layers;
    fn.hostBlocks = hostBlocksOf(fn);
    this.update(fn);
  }

  /** The GPU process knows the function no more. */
  unregistered(key: string): void {
    const fn = this.#state.functions.get(key);
    if (fn !== undefined) this.#unregister(fn);
  }

  /** The GPU process is gone, and knows none; those are among them whose removal waits for their last runs. */
  allUnregistered(): void {
    for (const fn of this.#state.byIndex) if (fn?.isRemoved === false) this.#unregister(fn);
  }

  #unregister(fn: LiveFunction): void {
    if (fn.hostBlocks === undefined) return;
    fn.hostBlocks = undefined;
    this.#state.host?.place.forget(fn);
    this.update(fn);
  }

  /** Joins its calls in these sizes from now on; undefined: they run one by one. */
  join(key: string, joined: JoinedSizes | undefined): void {
    const fn = this.#state.functions.get(key);
    if (fn === undefined) return;
    fn.joined = joined;
    this.corrected(fn);
  }

  /** The function may not use GPUs any more. Resolves when its GPU memory is free. */
  async retract(key: string): Promise<void> {
    const fn = this.#state.functions.get(key);
    if (fn?.plans === undefined) {
      await fn?.withdrawal?.over;
      return;
    }
    fn.ownPlans = fn.plans = undefined;
    fn.isPinned = false;
    this.#state.families.set(fn, []);
    await this.withdraw(fn, 'unload');
  }

  /** Frees the function's GPU memory; it may be loaded again. Resolves when the memory is free. */
  async unload(key: string): Promise<void> {
    const fn = this.#state.functions.get(key);
    if (fn?.plans !== undefined) await this.withdraw(fn, 'unload');
  }

  /** Forgets a function; its waiting invocations have no place any more. */
  async remove(key: string): Promise<void> {
    const fn = this.#state.functions.get(key);
    if (fn === undefined) return;
    this.#state.functions.delete(key);
    fn.ownPlans = fn.plans = undefined;
    this.#state.host?.place.forget(fn);
    this.#state.families.set(fn, []);
    await this.withdraw(fn, 'unload');
    this.#state.tell({ kind: 'function-removed', functionIndex: fn.index });
    fn.isRemoved = true;
    this.freeIfOver(fn);
  }

  /** For a function that was removed: its number is free once its last invocation has ended. */
  freeIfOver(fn: LiveFunction): void {
    if (fn.outstanding > 0) return;
    this.#state.byIndex[fn.index] = undefined;
    this.#freeIndices.push(fn.index);
  }

  of(key: string, settings: ScheduledSettings): LiveFunction {
    const known = this.#state.functions.get(key);
    if (known !== undefined) return known;
    const index = this.#freeIndices.pop() ?? named<FunctionId>(this.#state.byIndex.length);
    const fn = new LiveFunction(index, key, settings, this.#state.gpus.length);
    this.#state.functions.set(key, fn);
    this.#state.byIndex[index] = fn;
    this.ask(fn);
    fn.sheet = sheetOf(fn, this.#state.gpus.length);
    this.#state.tell({ kind: 'function-added', functionIndex: index, sheet: fn.sheet });
    return fn;
  }

  /** Its pool's instances have changed: the old offer would hand it more or fewer calls than they take. */
  askAnew(key: string): void {
    const fn = this.#state.functions.get(key);
    if (fn === undefined) return;
    fn.refreshedMs = -Infinity;
    if (this.ask(fn)) this.update(fn);
  }

  /** Asks the places beside the GPUs for their current offers. Returns whether the scheduler should be told. */
  ask(fn: LiveFunction): boolean {
    const nowMs = this.#state.now();
    if (nowMs - fn.refreshedMs < refreshMs) return false;
    fn.refreshedMs = nowMs;
    const cpu = this.#state.options.cpuOffer(fn.key);
    const others: Record<SideId, SideOffer | null> = {};
    for (const place of this.#state.others) others[place.id] = place.offer(fn.key, fn.ownMs);
    const isAlike =
      isAlikeOffer(cpu, fn.cpu) &&
      this.#state.others.every(({ id }) => {
        const [now, before] = [others[id], fn.others[id]];
        return Boolean(now) === Boolean(before) && isClose(now?.latencyMs, before?.latencyMs);
      });
    if (isAlike) return false;
    fn.cpu = cpu;
    fn.others = others;
    return true;
  }

  update(fn: LiveFunction): void {
    fn.sheet = sheetOf(fn, this.#state.gpus.length);
    this.#state.tell({ kind: 'sheet-changed', functionIndex: fn.index, sheet: fn.sheet });
  }

  /** A run took other times than its offers say. They change so often at most: the next run says so again. */
  observed(fn: LiveFunction): void {
    const nowMs = this.#state.now();
    if (nowMs - fn.correctedMs < refreshMs) return;
    fn.correctedMs = nowMs;
    this.corrected(fn);
  }

  corrected(fn: LiveFunction): void {
    if (fn.plans === undefined) return;
    fn.offers = offersOf(fn);
    if (fn.withdrawal === undefined) this.update(fn);
  }

  /** Removes the function from all GPUs: without an offer its layers are dropped as soon as nothing runs there. */
  async withdraw(fn: LiveFunction, cause: OwnCause): Promise<void> {
    const place = this.#state.place;
    // What was removed has no sheet any more, and its number may be that of another function.
    if (place === undefined || fn.isRemoved) return;
    if (fn.withdrawal === undefined) {
      const takeOut = async (): Promise<void> => {
        await place.quiet(fn.index);
        fn.withdrawal = undefined;
        if (fn.plans !== undefined && !fn.isRemoved) this.update(fn);
      };
      // From here on the sheet has no GPUs.
      fn.withdrawal = { cause, over: Promise.resolve() };
      this.update(fn);
      fn.withdrawal = { cause, over: takeOut() };
    }
    await fn.withdrawal.over;
  }
}
