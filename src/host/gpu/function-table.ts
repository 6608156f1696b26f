/** The records of all functions on the GPUs, and events that concern several of them. Pure, like function-state.ts. */
import {
  isOffered,
  newRecord,
  processEnded,
  processUp,
  reduce,
  roomAgain,
  type FunctionEffect,
  type FunctionEvent,
  type GpuFunctionRecord,
  type Reduced,
} from './function-state.ts';

export class GpuFunctionTable {
  readonly #records = new Map<string, GpuFunctionRecord>();
  readonly records: ReadonlyMap<string, GpuFunctionRecord> = this.#records;
  #isUp = false;
  /** Higher than every attempt of a forgotten function. */
  #nextAttempt = 0;

  /** A function, or another model under its key. */
  want(key: string, isPinned: boolean): readonly FunctionEffect[] {
    const before = this.#records.get(key);
    const effects = this.forget(key);
    this.#records.set(key, newRecord(key, isPinned, this.#nextAttempt, before === undefined ? 'first use' : 'changed'));
    return [...effects, ...(this.#isUp ? this.#change(key, processUp) : [])];
  }

  forget(key: string): readonly FunctionEffect[] {
    const record = this.#records.get(key);
    if (record === undefined) return [];
    this.#records.delete(key);
    this.#nextAttempt = Math.max(this.#nextAttempt, record.attempt + 1);
    const effects: FunctionEffect[] = [
      { kind: 'retract', key },
      { kind: 'discard', key, reason: undefined },
    ];
    return record.isPinned && isOffered(record) ? [...effects, ...this.#afterPin()] : effects;
  }

  apply(key: string, event: FunctionEvent, nowMs: number): readonly FunctionEffect[] {
    const record = this.#records.get(key);
    if (record === undefined) return [];
    const isForGood = event.kind === 'failed' && event.cause === 'room' && !this.#isAnyPinned();
    const known: FunctionEvent = isForGood ? { ...event, cause: 'function' } : event;
    const effects = this.#change(key, (each) => reduce(each, known, nowMs));
    const hasLostPin = event.kind === 'pinned' && record.isPinned && !event.isPinned;
    return hasLostPin ? [...effects, ...this.#afterPin()] : effects;
  }

  processEnded(reason: string): readonly FunctionEffect[] {
    this.#isUp = false;
    const isAlone = [...this.#records.values()].filter(({ isInHand }) => isInHand).length === 1;
    return this.#changeAll((record) => processEnded(record, reason, isAlone));
  }

  /** Functions of the last process come first, in the given order; then new ones. */
  processUp(latestFirst: readonly string[]): readonly FunctionEffect[] {
    this.#isUp = true;
    const lost = new Set(latestFirst.filter((key) => this.#records.get(key)?.state.kind === 'lost'));
    const keys = new Set([...lost, ...this.#keysIn('lost'), ...this.#keysIn('absent')]);
    return [...keys].flatMap((key) => this.#change(key, processUp));
  }

  #keysIn(kind: GpuFunctionRecord['state']['kind']): string[] {
    return [...this.#records.values()].flatMap(({ key, state }) => (state.kind === kind ? [key] : []));
  }

  #isAnyPinned(): boolean {
    return [...this.#records.values()].some((record) => record.isPinned && isOffered(record));
  }

  /** A pin has gone. */
  #afterPin(): readonly FunctionEffect[] {
    return this.#isUp ? this.#changeAll(roomAgain) : [];
  }

  #changeAll(change: (record: GpuFunctionRecord) => Reduced): readonly FunctionEffect[] {
    return [...this.#records.keys()].flatMap((key) => this.#change(key, change));
  }

  #change(key: string, change: (record: GpuFunctionRecord) => Reduced): readonly FunctionEffect[] {
    const { record, effects } = change(this.#records.get(key)!);
    this.#records.set(key, record);
    return effects;
  }
}
