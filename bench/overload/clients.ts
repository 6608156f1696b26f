/** The clients of `overload`, each in its own process (client.mjs). */
import type { TraceInvocation } from '../../src/replay/index.ts';
import { ask, Program } from '../servers.ts';

export interface Answer {
  /** 0: there was no answer. */
  readonly status: number;
  readonly latencyMs: number;
  /** When it was due. */
  readonly arrivalMs: number;
}

const program = 'overload/client.mjs';

/** How long a client and the host run hot before calls are timed. A small run measures nothing, so 20 ms will do. */
export const warmMsOf = (small: boolean): number => (small ? 20 : 500);

/**
 * Calls at given times, like many independent clients.
 * @param names of the functions, by the arrivals' indices
 * @param warmMs see {@link warmMsOf}
 */
export const openLoop = (
  url: string,
  names: readonly string[],
  arrivals: readonly TraceInvocation[],
  warmMs: number,
): Promise<Answer[]> => ask<Answer[]>(program, { kind: 'open', url, names, arrivals, warmMs });

/** Answers a second with so many clients that each wait for their answer. */
export const closedLoop = (url: string, name: string, clients: number, forMs: number): Promise<number> =>
  ask<number>(program, { kind: 'closed', url, name, clients, forMs });

export interface FloodOrder {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bodyFile: string;
  readonly count: number;
}

/** Replies by status to requests that are sent all at once; 0: no reply by the end. */
export class FloodClient implements Disposable {
  readonly #program: Program;

  private constructor(started: Program) {
    this.#program = started;
  }

  /** Resolves when the client is ready to begin. */
  static async start(order: FloodOrder): Promise<FloodClient> {
    const started = new Program(program, { kind: 'flood', ...order });
    await started.line();
    return new FloodClient(started);
  }

  begin(): void {
    this.#program.tell('begin');
  }

  /** Cancels the requests that are still open. */
  async end(): Promise<Readonly<Record<number, number>>> {
    this.#program.closeInput();
    return JSON.parse(await this.#program.line()) as Record<number, number>;
  }

  [Symbol.dispose](): void {
    this.#program[Symbol.dispose]();
  }
}
