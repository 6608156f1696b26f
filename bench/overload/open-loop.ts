/**
 * Calls that come when they come, whatever becomes of those before: over HTTP, as of many clients that do not know each
 * other.
 */
import { Agent, request as httpRequest } from 'node:http';
import type { Arrival } from '../many/arrivals.ts';

export interface Answer {
  readonly index: number;
  readonly status: number;
  /**
   * From the instant at which the call was to be sent: a generator that lags makes its answers later, never earlier.
   */
  readonly latencyMs: number;
  readonly atMs: number;
}

/** @param names of the functions, by the arrivals' indices */
export async function openLoop(url: string, names: readonly string[], arrivals: readonly Arrival[]): Promise<Answer[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: 2000 });
  const answers: Promise<Answer>[] = [];
  const startMs = performance.now();
  try {
    for (const { index, atMs } of arrivals) {
      const waitMs = atMs - (performance.now() - startMs);
      if (waitMs > 1) await new Promise((resolve) => setTimeout(resolve, waitMs));
      const one = async (): Promise<Answer> => {
        const status = await call(agent, url, names[index] ?? '');
        return { index, status, atMs, latencyMs: performance.now() - startMs - atMs };
      };
      answers.push(one());
    }
    return await Promise.all(answers);
  } finally {
    agent.destroy();
  }
}

/** Answers in a second with so many clients that each wait for theirs. */
export async function closedLoop(url: string, name: string, clients: number, forMs: number): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: clients });
  let answered = 0;
  const startMs = performance.now();
  const client = async (): Promise<void> => {
    while (performance.now() - startMs < forMs) if ((await call(agent, url, name)) === 200) answered++;
  };
  await Promise.all(Array.from({ length: clients }, client));
  agent.destroy();
  return (answered / (performance.now() - startMs)) * 1000;
}

const body = JSON.stringify({ inputs: [{ name: 'x', shape: [1, 1], datatype: 'FP32', data: [1] }] });

/** Gives the status; 0 where there was no answer. */
function call(agent: Agent, url: string, name: string): Promise<number> {
  return new Promise((resolve) => {
    const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
    const request = httpRequest(`${url}/v2/models/${name}/infer`, { method: 'POST', agent, headers }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
      response.on('error', () => resolve(0));
    });
    request.on('error', () => resolve(0));
    request.end(body);
  });
}
