/** Functions with different answers, calls to them at random hosts, and the outcome of each call. */
import { Agent, request, type OutgoingHttpHeaders } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { ElementType, GraphBuilder, serializeModel } from '../../src/onnx/index.ts';
import { waitLimitMs } from '../../test/time-limits.ts';
import type { FleetSystem } from './system.ts';

const width = 8;
const inputsOfEach = 4;
/** Tolerance between answers of two engines. */
const tolerance = 1e-4;
/** A call without an answer for this long is lost. */
const lostMs = waitLimitMs;
const agent = new Agent({ keepAlive: true });

/** Numbers in [0, 1) that the seed repeats (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface TestFunction {
  readonly name: string;
  readonly model: Buffer;
  /** Bodies, and ONNX Runtime's answers. */
  readonly cases: readonly { readonly body: string; readonly answer: readonly number[] }[];
}

/** y = relu(x W + b) with random weights, and ONNX Runtime's answers. */
export async function makeFunction(name: string, random: () => number): Promise<TestFunction> {
  const drawn = (count: number): Float32Array => Float32Array.from({ length: count }, () => random() * 2 - 1);
  const graph = new GraphBuilder('dense');
  const x = graph.input('x', ElementType.FLOAT, ['batch', width]);
  const product = graph.node('MatMul', [x, graph.weight('w', [width, width], drawn(width * width))]);
  const sum = graph.node('Add', [product, graph.weight('b', [width], drawn(width))]);
  graph.output(graph.node('Relu', [sum]), ElementType.FLOAT, ['batch', width], 'y');
  const model = Buffer.from(serializeModel(graph.build()));
  const session = await InferenceSession.create(model, { intraOpNumThreads: 1 });
  const cases = [];
  for (let index = 0; index < inputsOfEach; index++) {
    const input = drawn(width);
    const { y } = await session.run({ x: new Tensor('float32', input, [1, width]) });
    cases.push({ body: JSON.stringify({ input: [[...input]] }), answer: [...(y!.data as Float32Array)] });
  }
  await session.release();
  return { name, model, cases };
}

export interface Reply {
  readonly status: number;
  readonly placement: string;
  readonly code: string;
  readonly body: string;
}

/** Rejects if the connection breaks before the whole reply. */
export function send(
  url: string,
  method: string,
  path: string,
  body: string | Buffer = '',
  headers: OutgoingHttpHeaders = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const outgoing = request(`${url}${path}`, {
      method,
      agent,
      headers: { ...headers, 'Content-Length': Buffer.byteLength(body) },
    });
    outgoing.setTimeout(lostMs, () => outgoing.destroy(new Error('no answer')));
    outgoing.once('error', reject);
    outgoing.once('response', (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.once('error', reject);
      incoming.once('end', () => {
        const { statusCode: status = 0, headers: told } = incoming;
        const [placement, code] = [told['x-turntable-placement'], told['x-turntable-error']].map(String);
        resolve({ status, placement: placement!, code: code!, body: Buffer.concat(chunks).toString() });
      });
    });
    outgoing.end(body);
  });
}

export function isRight(reply: Reply, answer: readonly number[]): boolean {
  const { output } = JSON.parse(reply.body) as { output?: number[][] };
  const row = output?.[0] ?? [];
  return row.length === answer.length && row.every((value, at) => Math.abs(value - answer[at]!) <= tolerance);
}

/** The outcomes of all calls. */
export class Outcomes {
  answered = 0;
  /** Sent again because their host was killed. */
  sentAgain = 0;
  readonly placements = new Map<string, number>();
  readonly troubles: string[] = [];

  placed(placement: string): void {
    const kind = /^(host \S+ \([a-z-]+\)|remote worker|gpu|cpu pool)/.exec(placement)?.[1] ?? placement;
    const short = kind.replace(/^host \S+ /, 'passed ');
    this.placements.set(short, (this.placements.get(short) ?? 0) + 1);
  }
}

/**
 * One client: calls one function after another, each at a random host, until it is stopped.
 * @param pauseMs after each answer
 */
export async function callOn(
  system: FleetSystem,
  published: readonly TestFunction[],
  random: () => number,
  outcomes: Outcomes,
  isOver: () => boolean,
  pauseMs: number,
): Promise<void> {
  const drawn = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  while (!isOver()) {
    const fn = drawn(published);
    await callOnce(system, fn, drawn(fn.cases), () => Math.floor(random() * system.urls.length), outcomes);
    if (pauseMs > 0) await delay(pauseMs);
  }
}

/** One call, repeated until a living host has answered it. */
export async function callOnce(
  system: FleetSystem,
  fn: TestFunction,
  { body, answer }: TestFunction['cases'][number],
  chooseHost: () => number,
  outcomes: Outcomes,
): Promise<void> {
  const lateMs = performance.now() + lostMs;
  while (performance.now() < lateMs) {
    const host = chooseHost();
    const epoch = system.epochOf(host);
    if (epoch % 2 === 1) {
      await delay(2);
      continue;
    }
    try {
      const reply = await send(system.urls[host]!, 'POST', `/function/${fn.name}`, body);
      if (reply.status !== 200)
        outcomes.troubles.push(`${fn.name}: ${reply.status} ${reply.code}: ${reply.body.trim()}`);
      else if (!isRight(reply, answer)) outcomes.troubles.push(`${fn.name}: a wrong answer (${reply.placement})`);
      else outcomes.answered++;
      outcomes.placed(reply.placement);
      return;
    } catch (error) {
      if (system.epochOf(host) === epoch) {
        outcomes.troubles.push(`${fn.name}: ${(error as Error).message} at a living host`);
        return;
      }
      outcomes.sentAgain++;
    }
  }
  outcomes.troubles.push(`${fn.name}: no answer within ${lostMs} ms`);
}

/** Milliseconds from the acknowledgement until the last host shows it. */
export async function publishAndSee(system: FleetSystem, fn: TestFunction, host: number): Promise<number> {
  const reply = await send(system.urls[host]!, 'PUT', `/functions/${fn.name}?slo=10s`, fn.model);
  if (reply.status !== 201) throw new Error(`${fn.name} was not published: ${reply.status} ${reply.body}`);
  const fromMs = performance.now();
  for (const url of system.urls) {
    while ((await send(url, 'GET', `/functions/${fn.name}`)).status !== 200) await delay(2);
  }
  return performance.now() - fromMs;
}
