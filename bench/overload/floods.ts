/** Requests meant to take a host's memory, queue or event loop away from other callers, on a host with 2 GB. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { ElementType, GraphBuilder } from '../../src/onnx/index.ts';
import { tableOf, type BenchmarkResult, type BenchmarkTable } from '../benchmark.ts';
import { Servers } from '../servers.ts';
import { arrivalsOf } from '../shared/arrivals.ts';
import { loopDelayMs } from '../shared/requests.ts';
import { FloodClient, openLoop, warmMsOf, type Answer } from './clients.ts';
import { MemoryLimit } from './memory-limit.ts';

const floodSloMs = 300;
const limitBytes = 2 * 2 ** 30;
const others = ['other-0', 'other-1', 'other-2', 'other-3'];
const perSecond = 20;
/** The other callers run this long before the flood begins. */
const settleMs = 1000;

export interface Flood {
  readonly name: string;
  /** Replies by status; 0: no reply by the end of the scene. */
  readonly statuses: Readonly<Record<number, number>>;
  /** Longest delay of the host's event loop, from its metrics. */
  readonly longestStopMs: number;
  readonly others: readonly Answer[];
}

export interface Floods {
  readonly floods: readonly Flood[];
  /** How the memory was limited. */
  readonly means: string;
  /** Processes that the limit killed; and whether the host still answers at the end. */
  readonly kills: number;
  readonly isAlive: boolean;
}

export async function runFloods(small: boolean, seed: number, tinyGraph: () => GraphBuilder): Promise<Floods> {
  using limit = new MemoryLimit(limitBytes);
  await using servers = await Servers.create();
  for (const name of others) await servers.addFunction(name, tinyGraph(), { slo: `${floodSloMs}ms` });
  await servers.addFunction('wide', wideGraph(), { slo: '60s' });
  await servers.addFunction('stuck', tinyGraph(), { handler: 'handler.mjs', timeouts: { handler: '30s' } });
  await writeFile(join(servers.folder, 'functions', 'stuck', 'handler.mjs'), stuckHandler(small));
  const { url, process: host } = await servers.startHost([], {}, limit.through);
  const call = (forMs: number): Promise<Answer[]> =>
    openLoop(url, others, arrivalsOf({ functions: others.length, ratePerS: perSecond, forMs, seed }), warmMsOf(small));
  await call(small ? 200 : 1000);

  const floods: Flood[] = [];
  const elements = small ? 50_000 : 5_000_000;
  const kinds: readonly (readonly [name: string, count: number, request: FloodRequest])[] = [
    [`bodies of ${small ? 1 : 60} MB in gzip`, small ? 4 : 60, bomb(small)],
    ['calls to a function that is stuck', small ? 50 : 1100, stuck],
    [`calls with ${elements} elements of JSON, in and out`, 4, wide(elements)],
  ];
  for (const [what, count, { path, headers = {}, body }] of kinds) {
    const bodyFile = join(servers.folder, 'flood');
    await writeFile(bodyFile, body);
    using flood = await FloodClient.start({ url, path, headers, bodyFile, count });
    await loopDelayMs(url, 'max');
    const quiet = call(small ? 500 : 8000);
    await new Promise((resolve) => setTimeout(resolve, small ? 10 : settleMs));
    flood.begin();
    const answers = await quiet;
    // Stop once nothing else is measured: the stuck function would take half an hour for its calls.
    const statuses = await flood.end();
    floods.push({ name: `${count} ${what}`, statuses, others: answers, longestStopMs: await loopDelayMs(url, 'max') });
  }
  const [after] = await openLoop(url, others, [{ arrivalMs: 0, functionIndex: 0 }], warmMsOf(small));
  return { floods, means: limit.means, kills: limit.kills, isAlive: host.exitCode === null && after?.status === 200 };
}

interface FloodRequest {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export function floodsTable({ floods, means, kills, isAlive }: Floods): BenchmarkTable {
  return tableOf(
    `floods to a host in ${limitBytes / 2 ** 30} GB (${means}), beside ${others.length} functions with ${perSecond} calls a second; ` +
      `${isAlive ? 'it lives' : 'it has died'}, ${kills} processes were ended for memory`,
    floods,
    [
      ['FLOOD', (flood) => flood.name],
      [
        'REPLIES',
        (flood) =>
          Object.entries(flood.statuses)
            .map(([status, count]) => `${count} x ${status}`)
            .join(', '),
      ],
      ['>LONGEST STOP MS', (flood) => flood.longestStopMs.toFixed(0)],
      ['>% OF OTHERS IN SLO', (flood) => (100 * onTimeShare(flood)).toFixed(2)],
    ],
  );
}

export function floodAims({ floods, kills, isAlive }: Floods): NonNullable<BenchmarkResult['aims']> {
  const state = isAlive ? 'it lives' : 'it has died';
  return [
    { aim: 'floods: no death', met: isAlive && kills === 0, reached: `${state}, ${kills} processes ended for memory` },
    ...floods.flatMap((flood) => {
      const { name, longestStopMs: stopMs } = flood;
      const share = 100 * onTimeShare(flood);
      return [
        { aim: `${name}: no stop over 50 ms`, met: stopMs <= 50, reached: `${stopMs.toFixed(0)} ms` },
        { aim: `${name}: 99% of the others in the SLO`, met: share >= 99, reached: `${share.toFixed(2)}%` },
      ];
    }),
  ];
}

const onTimeShare = ({ others: answers }: Flood): number =>
  answers.filter(({ status, latencyMs }) => status === 200 && latencyMs <= floodSloMs).length / answers.length;

/** 60 MB of zeros as JSON, which gzip compresses to a thousandth. */
function bomb(small: boolean): FloodRequest {
  const body = gzipSync(jsonOf(small ? 500_000 : 30_000_000, '0'));
  return { path: '/v2/models/wide/infer', headers: { 'Content-Encoding': 'gzip' }, body };
}

const wide = (elements: number): FloodRequest => ({
  path: '/v2/models/wide/infer',
  body: jsonOf(elements, '0.123456789'),
});

const stuck: FloodRequest = { path: '/function/stuck', body: Buffer.from('{}') };

function jsonOf(elements: number, value: string): Buffer {
  const data = Buffer.alloc(elements * (value.length + 1), `${value},`);
  const head = `{"inputs":[{"name":"x","shape":[${elements}],"datatype":"FP32","data":[`;
  return Buffer.concat([Buffer.from(head), data.subarray(0, -1), Buffer.from(']}]}')]);
}

/** y = max(x, 0), of any length. */
function wideGraph(): GraphBuilder {
  const graph = new GraphBuilder('wide');
  const x = graph.input('x', ElementType.FLOAT, ['count']);
  graph.output(graph.node('Relu', [x]), ElementType.FLOAT, ['count'], 'y');
  return graph;
}

/**
 * Two seconds a call: a few thousand times less than the flood needs. In a small run the thread sleeps for them, and
 * leaves its core to others; it hears as little.
 */
const stuckHandler = (small: boolean): string => `
export async function preprocess() {
  ${small ? 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000);' : 'const untilMs = Date.now() + 2000;\n  while (Date.now() < untilMs);'}
  return [{ name: 'x', datatype: 'FP32', shape: [1, 1], data: [1] }];
}
export async function postprocess() { return 'done'; }
`;
