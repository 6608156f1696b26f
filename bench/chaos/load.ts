/** Clients that wait for each answer and check it. A call whose host was killed before it answered is sent again. */
import { Agent } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { GrpcCaller, openInference, plainCall, type Call, type Outcome } from './answers.ts';
import type { Ledger, Stream } from './ledger.ts';
import { valuesMax } from './models.ts';
import type { HostName, System } from './system.ts';

/** Pause between two tries of a refused call. */
const againMs = 25;

export class SyncLoad {
  readonly #system: System;
  readonly #ledger: Ledger;
  readonly #grpc: GrpcCaller[] = [];
  #next = 1;
  #stopped = false;

  constructor(system: System, ledger: Ledger) {
    this.#system = system;
    this.#ledger = ledger;
  }

  /**
   * Resolves after it was stopped, when its last call has ended.
   * @param count clients of each host
   * @param pauseMs between an answer and the client's next call
   */
  async run(count: number, pauseMs: number): Promise<void> {
    const clients = this.#system.hosts.flatMap((host) => {
      const grpc = new GrpcCaller(this.#system.addressOf(host).grpcPort);
      this.#grpc.push(grpc);
      return Array.from({ length: count }, (_, index) => this.#client(host, grpc, index, pauseMs));
    });
    await Promise.all(clients);
    for (const grpc of this.#grpc) grpc.close();
  }

  stop(): void {
    this.#stopped = true;
  }

  /** One call after another, on its own connection. */
  async #client(host: HostName, grpc: GrpcCaller, first: number, pauseMs: number): Promise<void> {
    const { url } = this.#system.addressOf(host);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const ways =
      host === 'host'
        ? [openInference(url, 'busy', agent), plainCall(url, 'echo', agent), grpc.infer('light')]
        : [openInference(url, 'sum', agent), plainCall(url, 'sum', agent), grpc.infer('sum')];
    for (let turn = first; !this.#stopped; turn++) {
      await this.#call(host, ways[turn % ways.length]!);
      if (pauseMs > 0) await delay(pauseMs);
    }
    agent.destroy();
  }

  async #call(host: HostName, call: Call): Promise<void> {
    const number = this.#next++;
    // Unique among the calls in flight.
    const value = number % valuesMax;
    this.#ledger.begin();
    try {
      for (let isOver = false; !isOver;) {
        const epoch = this.#system.epochOf(host);
        const outcome = await call(value, String(number));
        const hadHost = epoch % 2 === 0 && this.#system.epochOf(host) === epoch;
        isOver = this.#note(host === 'host' ? 'cpu' : 'gpu', value, outcome, hadHost);
        if (!isOver) await delay(againMs);
      }
    } finally {
      this.#ledger.end();
    }
  }

  /** Whether the call is over: answered or lost. */
  #note(stream: Stream, value: number, outcome: Outcome, hadHost: boolean): boolean {
    switch (outcome.kind) {
      case 'answer':
        if (outcome.value === value) this.#ledger.good(stream, outcome.placement);
        else this.#ledger.trouble('wrong', `${stream}: ${outcome.value} for ${value}, ${outcome.placement}`);
        return true;
      case 'refused':
        this.#ledger.refused(outcome.code);
        return this.#stopped;
      case 'failed':
        this.#ledger.trouble('lost', `${stream}: ${outcome.detail}`);
        return true;
      case 'hung':
        this.#ledger.trouble('hung', `${stream}: no answer to ${value}`);
        return true;
      case 'broken':
        if (hadHost)
          this.#ledger.trouble('lost', `${stream}: the connection to a living host broke: ${outcome.detail}`);
        else this.#ledger.retries++;
        return hadHost || this.#stopped;
    }
  }
}
