/** Functions with different answers, calls to them at random hosts, and the outcome of each call. */
import { setTimeout as delay } from 'node:timers/promises';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { ElementType, GraphBuilder, serializeModel } from '../../src/onnx/index.ts';
import type { Xoshiro } from '../../src/replay/index.ts';
import { lostMs, mustSend, send, type HttpAnswer } from '../shared/requests.ts';
import type { FleetSystem } from './system.ts';

const width = 8;
const inputsOfEach = 4;
/** Tolerance between answers of two engines. */
const tolerance = 1e-4;

export interface TestFunction {
  readonly name: string;
  readonly model: Buffer;
  /** Bodies, and ONNX Runtime's answers. */
  readonly cases: readonly { readonly body: string; readonly answer: readonly number[] }[];
}

/** y = relu(x W + b) with random weights, and ONNX Runtime's answers. */
export async function makeFunction(name: string, random: Xoshiro): Promise<TestFunction> {
  const drawn = (count: number): Float32Array => Float32Array.from({ length: count }, () => random.uniform() * 2 - 1);
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

export function isRight(reply: HttpAnswer, answer: readonly number[]): boolean {
  const { output } = JSON.parse(reply.text) as { output?: number[][] };
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
  random: Xoshiro,
  outcomes: Outcomes,
  isOver: () => boolean,
  pauseMs: number,
): Promise<void> {
  const drawn = <T>(list: readonly T[]): T => list[random.below(list.length)]!;
  while (!isOver()) {
    const fn = drawn(published);
    await callOnce(system, fn, drawn(fn.cases), () => random.below(system.urls.length), outcomes);
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
      const reply = await send(`${system.urls[host]!}/function/${fn.name}`, { method: 'POST', body });
      if (reply.status !== 200)
        outcomes.troubles.push(`${fn.name}: ${reply.status} ${reply.code}: ${reply.text.trim()}`);
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
  await mustSend(`${system.urls[host]!}/functions/${fn.name}?slo=10s`, { method: 'PUT', body: fn.model });
  const fromMs = performance.now();
  for (const url of system.urls) {
    while ((await send(`${url}/functions/${fn.name}`)).status !== 200) await delay(2);
  }
  return performance.now() - fromMs;
}
