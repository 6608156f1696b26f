/** What schedulers decide, as a hash: the same decisions in the same order give the same hash. */
import { createHash, type Hash } from 'node:crypto';
import { vi } from 'vitest';
import type { Action, Shell } from '../../src/schedule/index.ts';
// The class is an inside of the simulator, and the one place that sees every order.
import { Simulator } from '../../src/replay/simulator.ts';

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
  const shell = Simulator.prototype as Shell;
  const spies = (['run', 'load', 'evict', 'wait', 'wake', 'act'] as const).map((order) => {
    const carriedOut = shell[order] as (...facts: unknown[]) => void;
    return vi.spyOn(shell, order).mockImplementation(function (this: Shell, ...facts: unknown[]) {
      // An order's load has tables that are the offer's.
      const named = order === 'wait' ? [facts[0], placeNumber(facts[1]), ...facts.slice(2)] : facts;
      hash.add(order, ...named.map((fact) => (isLoad(fact) ? [fact.way.mode, fact.prefix] : firstNames(fact))));
      carriedOut.apply(this, facts);
    });
  });
  try {
    replay();
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  return { decisions: hash.decisions, hash: hash.text };
}

const isLoad = (fact: unknown): fact is { readonly way: { readonly mode: string }; readonly prefix: number } =>
  typeof fact === 'object' && fact !== null && 'way' in fact;
