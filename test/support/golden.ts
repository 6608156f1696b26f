/** What schedulers decide, as a hash: the same decisions in the same order give the same hash. */
import { createHash, type Hash } from 'node:crypto';
import { vi } from 'vitest';
import type { Action, Shell } from '../../src/schedule/index.ts';
// The class is an inside of the simulator, and the one place that sees every order.
import { Simulator } from '../../src/replay/simulator.ts';

/** Instants to a nanosecond of an hour: the last digits of sums may differ between versions of V8. */
const digits = 13;

const rounded = (_key: string, value: unknown): unknown =>
  typeof value === 'number' && !Number.isInteger(value) ? value.toPrecision(digits) : value;

export class DecisionHash {
  readonly #hash: Hash = createHash('sha256');
  decisions = 0;

  add(kind: string, ...facts: unknown[]): void {
    this.decisions++;
    this.#hash.update(`${kind} ${JSON.stringify(facts, rounded)}\n`);
  }

  action(action: Action): void {
    this.add(action.kind, action);
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
      hash.add(order, ...facts.map((fact) => (isLoad(fact) ? [fact.way.mode, fact.prefix] : fact)));
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
