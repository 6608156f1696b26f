/** What schedulers decide, as a hash: the same decisions in the same order give the same hash. */
import { createHash, type Hash } from 'node:crypto';
import { vi } from 'vitest';
import { Scheduler, type Action, type LoadOrder } from '../../src/schedule/index.ts';

/** Instants to a nanosecond of an hour: the last digits of sums may differ between versions of V8. */
const digits = 13;

const rounded = (key: string, value: unknown): unknown => {
  if (key === 'otherPlace') return placeNumber(value);
  return typeof value === 'number' && !Number.isInteger(value) ? value.toPrecision(digits) : value;
};

// Hashes of decisions stay comparable over changes of names and fields: places and actions are written as they were at first.
const placeNumber = (place: unknown): unknown =>
  place === 'cpu' ? -1 : place === 'workers' ? -2 : place === undefined ? -3 : place;

function firstNames(fact: unknown): unknown {
  const action = fact as Action;
  switch (action?.kind) {
    case 'run-beside': {
      const { kind: _, place, loads, ...run } = action;
      const { invocation, functionIndex, ...rest } = run;
      return place === 'cpu'
        ? { kind: 'run-cpu', invocation, functionIndex, loads, ...rest }
        : { kind: 'run-worker', invocation, functionIndex, ...rest };
    }
    case 'run':
    case 'load':
      return action.load === null
        ? action
        : { ...action, load: { functionIndex: action.functionIndex, ...action.load } };
    case 'stage':
    case 'evict-host': {
      const { layers: _, ...order } = action;
      return order;
    }
    case 'wait':
      return { ...action, place: placeNumber(action.place) };
    default:
      return fact;
  }
}

export class DecisionHash {
  readonly #hash: Hash = createHash('sha256');
  decisions = 0;

  add(kind: string, ...facts: unknown[]): void {
    this.decisions++;
    this.#hash.update(`${kind} ${JSON.stringify(facts, rounded)}\n`);
  }

  action(action: Action): void {
    const named = firstNames(action) as Action;
    this.add(named.kind, named);
  }

  get text(): string {
    return this.#hash.digest('hex').slice(0, 16);
  }
}

/** Hashes all that the schedulers of a replay order. @param replay runs one or more simulators */
export function decisionsOf(replay: () => void): { readonly decisions: number; readonly hash: string } {
  const hash = new DecisionHash();
  const handle = Reflect.get(Scheduler.prototype, 'handle');
  const spy = vi.spyOn(Scheduler.prototype, 'handle').mockImplementation(function (this: Scheduler, event, nowMs) {
    const actions = handle.call(this, event, nowMs);
    for (const action of actions) hash.add(...factsOf(action));
    return actions;
  });
  try {
    replay();
  } finally {
    spy.mockRestore();
  }
  return { decisions: hash.decisions, hash: hash.text };
}

/** What came up for almost every invocation was told as a list of facts, and not as an action. */
function factsOf(action: Action): readonly [string, ...unknown[]] {
  switch (action.kind) {
    case 'run': {
      const { kind, invocation, functionIndex, gpu, start, load, predictedEndMs, decision, plan, companions } = action;
      return [kind, invocation, functionIndex, gpu, start, named(load), predictedEndMs, decision, plan, companions];
    }
    case 'load': {
      const { kind, invocation, functionIndex, gpu, load, plan } = action;
      return [kind, invocation, functionIndex, gpu, named(load), plan];
    }
    case 'evict': {
      const { kind, functionIndex, gpu, prefix, bytes, cause } = action;
      return [kind, functionIndex, gpu, prefix, bytes, cause];
    }
    case 'wait': {
      const { kind, invocation, place, predictedEndMs, decision } = action;
      return [kind, invocation, placeNumber(place), predictedEndMs, decision];
    }
    case 'wake':
      return ['wake', action.atMs];
    default:
      return ['act', firstNames(action)];
  }
}

/** An order's load has tables that are the offer's. */
const named = (load: LoadOrder | null): unknown => load && [load.way.mode, load.prefix];
