/**
 * Publishes one function again and again: an accepted version must serve from then on, through kills and full disks.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { attempt, openInference, unlessGood } from './answers.ts';
import type { HttpAnswer } from '../shared/requests.ts';
import type { Ledger } from './ledger.ts';
import { sumModel } from './models.ts';
import type { System } from './system.ts';

const versionsKept = 3;
/** Each publication takes the CPU time of a hundred calls: a process opens the model. */
const pauseMs = 250;
const againMs = 25;

export class Publisher {
  readonly #system: System;
  readonly #ledger: Ledger;
  /**
   * What the function may add to its input now: one value, or two while it is unknown whether a publication was
   * accepted.
   */
  #biases: number[] = [];
  readonly #versions: string[] = [];
  #stopped = false;

  constructor(system: System, ledger: Ledger) {
    this.#system = system;
    this.#ledger = ledger;
  }

  stop(): void {
    this.#stopped = true;
  }

  async run(): Promise<void> {
    for (let bias = 1000; !this.#stopped; bias += 1000) {
      await this.#publish(bias);
      await this.#check();
      if (this.#versions.length > versionsKept) await this.#removeOldest();
      await delay(pauseMs);
    }
  }

  get #url(): string {
    return this.#system.addressOf('host').url;
  }

  async #publish(bias: number): Promise<void> {
    const epoch = this.#system.epochOf('host');
    const answer = await attempt(`${this.#url}/functions/shelf?slo=5s`, {
      method: 'PUT',
      body: sumModel(bias),
    });
    const problem = 'kind' in answer ? answer : unlessGood(answer);
    switch (problem?.kind) {
      case undefined:
        this.#biases = [bias];
        this.#versions.push((JSON.parse((answer as HttpAnswer).text) as { version: string }).version);
        return this.#ledger.good('publications');
      case 'refused':
        return this.#ledger.refused(problem.code);
      case 'broken':
        this.#biases.push(bias);
        this.#ledger.retries++;
        if (epoch % 2 === 0 && epoch === this.#system.epochOf('host')) {
          this.#ledger.trouble('lost', `a publication: the connection to a living host broke: ${problem.detail}`);
        }
        return;
      case 'hung':
        return this.#ledger.trouble('hung', 'a publication was not answered');
      case 'failed':
        return this.#ledger.trouble('lost', `a publication: ${problem.detail}`);
      case 'answer':
    }
  }

  /** Checks that the serving version is the last accepted one. */
  async #check(): Promise<void> {
    if (this.#biases.length === 0) return;
    const call = openInference(this.#url, 'shelf');
    while (!this.#stopped) {
      const outcome = await call(1, 'check');
      if (outcome.kind === 'failed') return this.#ledger.trouble('lost', `publications: ${outcome.detail}`);
      if (outcome.kind !== 'answer') {
        await delay(againMs);
        continue;
      }
      const serving = this.#biases.find((bias) => outcome.value === bias + 1);
      if (serving === undefined) {
        const expected = this.#biases.join(' or ');
        this.#ledger.trouble('wrong', `the published function adds ${outcome.value - 1} instead of ${expected}`);
      } else this.#biases = [serving];
      return;
    }
  }

  async #removeOldest(): Promise<void> {
    const answer = await attempt(`${this.#url}/functions/shelf/versions/${this.#versions[0]!}`, { method: 'DELETE' });
    if ('kind' in answer) return;
    const problem = unlessGood(answer);
    if (problem?.kind === 'refused') return this.#ledger.refused(problem.code);
    // A retry of a removal whose answer was lost.
    if (problem?.kind === 'failed' && answer.status !== 404) {
      this.#ledger.trouble('lost', `a removal: ${problem.detail}`);
    }
    this.#versions.shift();
  }
}
