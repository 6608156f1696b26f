/** Asynchronous calls: each accepted one must get its reply and its callback, both right. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { waitLimitMs } from '../../test/time-limits.ts';
import { attempt, plainValue, unlessGood } from './answers.ts';
import type { Ledger } from './ledger.ts';
import { valuesMax } from './models.ts';
import type { System } from './system.ts';

/** A killed host's lease ends after 5 s, and a callback that it was sending waits for its next try. */
const settleMs = waitLimitMs;
const outstandingMax = 40;
const pauseMs = 25;

interface Accepted {
  readonly value: number;
  reply: string | undefined;
  calledBack: string | undefined;
}

export class AsyncLoad {
  readonly #system: System;
  readonly #ledger: Ledger;
  readonly #outstanding = new Map<string, Accepted>();
  /** Redis was made to forget these: their replies and callbacks may or may not come. */
  readonly #flushed = new Set<string>();
  readonly #finished = new Map<string, string>();
  #submitting: string | undefined;
  #next = 1;
  #stopped = false;

  constructor(system: System, ledger: Ledger) {
    this.#system = system;
    this.#ledger = ledger;
    system.onFlush = () => this.#forget();
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Resolves after it was stopped, when every accepted call has its reply and its callback, or was counted as lost. */
  async run(): Promise<void> {
    const server = createServer((request, response) => void this.#receive(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      await Promise.all([this.#submitAll(server), this.#collectAll()]);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }

  get #url(): string {
    return `${this.#system.addressOf('host').url}/async-function`;
  }

  async #submitAll(server: Server): Promise<void> {
    const callback = `http://127.0.0.1:${(server.address() as AddressInfo).port}/reply`;
    while (!this.#stopped) {
      if (this.#outstanding.size < outstandingMax) await this.#submit(`call-${this.#next++}`, callback);
      await delay(pauseMs);
    }
  }

  /** The id makes a retry safe: a call accepted before is not run twice. */
  async #submit(id: string, callback: string): Promise<void> {
    const value = this.#next % valuesMax;
    this.#submitting = id;
    const init = {
      method: 'POST',
      headers: { 'x-call-id': id, 'x-callback-url': callback },
      body: JSON.stringify({ input: [[value]] }),
    };
    const entry: Accepted = { value, reply: undefined, calledBack: undefined };
    this.#outstanding.set(id, entry);
    for (;;) {
      const answer = await attempt(`${this.#url}/busy`, init);
      const problem = 'kind' in answer ? answer : unlessGood(answer);
      if (problem === undefined) return this.#ledger.good('asynchronous');
      if (problem.kind === 'refused') this.#ledger.refused(problem.code);
      else if (problem.kind === 'broken') this.#ledger.retries++;
      else {
        this.#ledger.trouble(
          problem.kind === 'hung' ? 'hung' : 'lost',
          `${id} was not accepted: ${JSON.stringify(problem)}`,
        );
        this.#outstanding.delete(id);
        return;
      }
      if (this.#stopped) {
        // No acceptance at the end; the client cannot know whether the call was accepted.
        this.#outstanding.delete(id);
        return;
      }
      await delay(pauseMs);
    }
  }

  async #collectAll(): Promise<void> {
    let lateMs = Infinity;
    while (!this.#stopped || this.#outstanding.size > 0) {
      if (this.#stopped && lateMs === Infinity) lateMs = performance.now() + settleMs;
      for (const [id, entry] of this.#outstanding) {
        if (id === this.#submitting && !this.#stopped) continue;
        if (entry.reply === undefined) await this.#ask(id, entry);
        this.#finishIfDone(id, entry);
        if (performance.now() > lateMs) this.#giveUp(id, entry);
      }
      await delay(pauseMs);
    }
  }

  async #ask(id: string, entry: Accepted): Promise<void> {
    const answer = await attempt(`${this.#url}/${id}`, {});
    if ('kind' in answer || answer.status === 202 || answer.status === 503) return;
    if (answer.status === 404 && this.#flushed.has(id)) {
      this.#outstanding.delete(id);
      this.#ledger.flushed++;
      return;
    }
    entry.reply = answer.text;
    if (answer.status !== 200) this.#ledger.trouble('lost', `${id}: ${answer.status} ${answer.text.slice(0, 300)}`);
    else if (plainValue(answer.text) !== entry.value) {
      this.#ledger.trouble('wrong', `${id}: ${answer.text} for ${entry.value}`);
    }
  }

  #finishIfDone(id: string, entry: Accepted): void {
    if (entry.reply === undefined) return;
    // The callback may have been forgotten.
    if (entry.calledBack === undefined && !this.#flushed.has(id)) return;
    if (entry.calledBack !== undefined && entry.calledBack !== entry.reply) {
      this.#ledger.trouble('doubled', `${id}: replied ${entry.reply}, called back with ${entry.calledBack}`);
    }
    this.#outstanding.delete(id);
    this.#finished.set(id, entry.reply);
  }

  #giveUp(id: string, { reply }: Accepted): void {
    if (!this.#outstanding.delete(id)) return;
    if (this.#flushed.has(id)) this.#ledger.flushed++;
    else
      this.#ledger.trouble('lost', `${id}: accepted, but ${reply === undefined ? 'no reply came' : 'not called back'}`);
  }

  #forget(): void {
    for (const id of this.#outstanding.keys()) this.#flushed.add(id);
  }

  async #receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    } catch {
      return; // The host was killed while it was sending; it sends again.
    }
    const id = String(request.headers['x-call-id']);
    const body = Buffer.concat(chunks).toString();
    const entry = this.#outstanding.get(id);
    const before = entry?.calledBack ?? this.#finished.get(id);
    if (before !== undefined) this.#ledger.calledBackTwice++;
    if (before !== undefined && before !== body) {
      this.#ledger.trouble('doubled', `${id}: two different replies were called back: ${before} and ${body}`);
    }
    if (entry !== undefined) entry.calledBack = body;
    response.end();
  }
}
