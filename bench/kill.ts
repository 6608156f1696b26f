/** Whether anything is lost while instances are killed: every request must get exactly one answer, and its own. */
import { Agent, request as httpRequest } from 'node:http';
import { ElementType, GraphBuilder } from '../src/onnx/index.ts';
import type { Benchmark, BenchmarkOptions, BenchmarkResult } from './benchmark.ts';
import { instancePids, Servers } from './servers.ts';

const rows = 16;
const width = 768;
const layers = 8;

export const benchmark: Benchmark = {
  name: 'kill',
  description:
    'invocations over 50 connections while an instance is killed with SIGKILL about every second: is any lost?',
  run,
};

async function run({ small, seed, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const total = small ? 600 : 10_000;
  const connections = 50;
  const killIntervalMs = small ? 200 : 1000;
  await using servers = await Servers.create();
  await servers.addFunction('busy', busyGraph(), { pinned: true });
  const host = await servers.startHost();
  const agent = new Agent({ keepAlive: true, maxSockets: connections });

  let kills = 0;
  let answered = 0;
  let answeredAtKill = 0;
  const random = lcg(seed);
  // An invocation is tried twice. Where the machine is so busy that none is answered between two kills, both could meet it,
  // or no instance would ever finish loading: so everybody who waited at a kill has been answered before the next.
  const killOne = async (): Promise<void> => {
    const pids = await instancePids(host.process);
    if (kills > 0 && answered - answeredAtKill < connections) return;
    const victim = pids[Math.floor(random() * pids.length)];
    if (victim === undefined) return;
    process.kill(victim, 'SIGKILL');
    kills++;
    answeredAtKill = answered;
  };
  const killer = setInterval(() => void killOne(), killIntervalMs);

  const statuses: Record<string, number> = {};
  const answers = new Uint8Array(total);
  let wrong = 0;
  let next = 0;
  const startMs = performance.now();
  const latenciesMs: number[] = [];
  const client = async (): Promise<void> => {
    while (next < total) {
      const id = next++;
      const sentMs = performance.now();
      const { status, body } = await invoke(agent, host.url, id);
      latenciesMs.push(performance.now() - sentMs);
      answered++;
      statuses[status] = (statuses[status] ?? 0) + 1;
      answers[id] = (answers[id] ?? 0) + 1;
      if (status === 200 && !isAnswerTo(id, body)) wrong++;
      if (id % 100 === 0) progress(`${id} of ${total}, ${kills} killed`);
    }
  };
  try {
    await Promise.all(Array.from({ length: connections }, client));
  } finally {
    clearInterval(killer);
    agent.destroy();
  }
  const tookMs = performance.now() - startMs;
  const once = answers.reduce((sum, count) => sum + (count === 1 ? 1 : 0), 0);
  const good = statuses[200] ?? 0;
  latenciesMs.sort((a, b) => a - b);
  const p99Ms = latenciesMs[Math.floor(latenciesMs.length * 0.99)] ?? Number.NaN;
  return {
    settings: { invocations: total, connections, killIntervalMs, layers, rows, width },
    tables: [
      {
        title: 'answers',
        provenance: { kind: 'measured' },
        columns: [{ title: 'WHAT' }, { title: 'COUNT', align: 'right' }],
        rows: [
          ['instances killed', String(kills)],
          ['requests', String(total)],
          ['answered exactly once', String(once)],
          ...Object.entries(statuses).map(([status, count]) => [`status ${status}`, String(count)]),
          ["another request's answer", String(wrong)],
          ['p99 ms', p99Ms.toFixed(1)],
        ],
      },
    ],
    figures: { kills, answeredOnce: once, succeeded: good, wrong, tookMs, p99Ms },
    aims: [
      { aim: 'every request gets exactly one answer', met: once === total, reached: `${once} of ${total}` },
      { aim: 'no invocation is lost to a kill', met: good === total, reached: `${good} of ${total} with status 200` },
      { aim: "nobody gets another's answer", met: wrong === 0, reached: `${wrong} wrong` },
      { aim: 'instances were killed meanwhile', met: kills > 0, reached: `${kills} killed` },
    ],
    limits: ['a kill of the host itself; the model store has tests of its own for that'],
  };
}

/** y = x by way of some milliseconds of work, so that kills meet runs in progress. */
function busyGraph(): GraphBuilder {
  const graph = new GraphBuilder('busy');
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  const ones = graph.weight('expand', [1, rows * width], new Float32Array(rows * width).fill(1));
  let hidden = graph.node('Reshape', [graph.node('MatMul', [x, ones]), graph.constant({ ints: [rows, width] })]);
  for (let layer = 0; layer < layers; layer++) {
    const weight = graph.weight(`layer.${layer}`, [width, width], new Float32Array(width * width).fill(1 / width));
    hidden = graph.node('MatMul', [hidden, weight]);
  }
  graph.output(graph.node('ReduceMean', [hidden], { axes: [0, 1] }), ElementType.FLOAT, [1, 1], 'y');
  return graph;
}

function isAnswerTo(id: number, body: string): boolean {
  const { id: echoed, outputs } = JSON.parse(body) as { id: string; outputs: { data: number[] }[] };
  // The sums of float32 are exact here up to a few units in the last place.
  return echoed === String(id) && Math.abs((outputs[0]?.data[0] ?? Number.NaN) - id) <= id * 1e-4;
}

function invoke(agent: Agent, url: string, id: number): Promise<{ status: number; body: string }> {
  const body = JSON.stringify({ id: String(id), inputs: [{ name: 'x', shape: [1, 1], datatype: 'FP32', data: [id] }] });
  return new Promise((resolve, reject) => {
    const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
    const request = httpRequest(`${url}/v2/models/busy/infer`, { method: 'POST', agent, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: text }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** Numerical Recipes' linear congruential generator, in [0, 1). */
function lcg(seed: number): () => number {
  let state = seed >>> 0;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}
