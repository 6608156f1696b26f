/**
 * What a call costs by the size of its body: the host beside three servers that do less, and the processor time that each
 * spends in the process that clients talk to and in its children.
 */
import { join } from 'node:path';
import { processorUse } from '../../src/process/index.ts';
import { ElementType, GraphBuilder } from '../../src/onnx/index.ts';
import { tableOf, type BenchmarkTable } from '../benchmark.ts';
import { runLoad, type Load } from '../echo.ts';
import { descendants, projectRoot, type Servers, type StartedServer } from '../servers.ts';
import { binaryRequest } from '../shared/requests.ts';
import { median, sum } from '../shared/statistics.ts';

export const bodySizesName = 'echo-any';

/** y = x, FP32 [1, values]. */
export function anySizeGraph(): GraphBuilder {
  const graph = new GraphBuilder(bodySizesName);
  const x = graph.input('x', ElementType.FLOAT, [1, 'values']);
  graph.output(graph.node('Identity', [x]), ElementType.FLOAT, [1, 'values'], 'y');
  return graph;
}

const forms = ['binary', 'JSON'] as const;
type Form = (typeof forms)[number];
const rivals = ['bare node:http', 'one process', 'one child'] as const;
type Server = (typeof rivals)[number] | 'turntable';

export interface Cell {
  readonly bytes: number;
  readonly form: Form;
  readonly clients: number;
}

export interface Measured extends Load {
  readonly ownMs: number;
  readonly childrenMs: number;
}

interface BodySizesOptions {
  readonly sizes: readonly number[];
  readonly clients: readonly number[];
  readonly rounds: number;
  /** Of one load; large bodies get fewer. */
  readonly requestsMax: number;
  readonly progress: (text: string) => void;
}

export interface BodySizes {
  readonly table: BenchmarkTable;
  /** The host's median against a rival's of the same rounds; undefined where it was not measured. */
  readonly p50Ratio: (rival: Server, cell: Cell) => number | undefined;
  readonly rateShare: (rival: Server, cell: Cell) => number | undefined;
}

/** Of one load. JSON takes forty times as long. */
const loadBytes = { binary: 100e6, JSON: 20e6 };
const requestsMin = 24;
/**
 * Of the first round's binary loads. After 20,000 calls of 4 KB, V8 dropped the code of 44 functions in the first 500
 * calls of 602 KB, and compiled some until about the 3000th: for two clients' loads of so many. JSON takes far longer
 * than what V8 has not compiled.
 */
const compilingRequests = 1500;

const keyOf = ({ bytes, form, clients }: Cell, server: Server): string => `${bytes} ${form} ${clients} ${server}`;

export function requestOf(bytes: number, form: Form): ReturnType<typeof binaryRequest> {
  // As wide in JSON as real activations: nine significant digits.
  const values = Float32Array.from({ length: bytes / 4 }, (_, at) => Math.sin(at) * 3);
  const shape = [1, values.length];
  if (form === 'binary') return binaryRequest(shape, values);
  const x = { name: 'x', shape, datatype: 'FP32', data: Array.from(values) };
  return { headers: { 'Content-Type': 'application/json' }, body: Buffer.from(JSON.stringify({ inputs: [x] })) };
}

const file = (name: string): string => join(projectRoot, 'bench/http', name);
const usedMs = (pid: number): number => processorUse(pid)?.usedMs ?? 0;

export async function measure(server: StartedServer, path: string, cell: Cell, requests: number): Promise<Measured> {
  const { headers, body } = requestOf(cell.bytes, cell.form);
  const pid = server.process.pid!;
  const children = await descendants(pid);
  const childrenUsedMs = (): number => sum(children.map(usedMs));
  const [ownMs, childrenMs] = [usedMs(pid), childrenUsedMs()];
  const order = { url: server.url, path, headers, bodyBase64: body.toString('base64'), requests, client: 'raw' };
  const load = await runLoad('http/load.mjs', { ...order, connections: cell.clients }, '200');
  return { ...load, ownMs: (usedMs(pid) - ownMs) / requests, childrenMs: (childrenUsedMs() - childrenMs) / requests };
}

/** The servers take turns within each round; each figure is the median over the rounds. */
export async function compareBodySizes(
  servers: Servers,
  host: StartedServer,
  { sizes, clients, rounds, requestsMax, progress }: BodySizesOptions,
): Promise<BodySizes> {
  const model = join(servers.folder, 'functions', bodySizesName, 'model.onnx');
  const started: readonly (readonly [Server, StartedServer, string])[] = [
    ['bare node:http', await servers.start([file('bare-server.mjs')]), '/'],
    ['one process', await servers.start([file('direct-server.mjs'), model]), '/'],
    ['one child', await servers.start([file('child-server.mjs'), model]), '/'],
    ['turntable', host, `/v2/models/${bodySizesName}/infer`],
  ];
  const cells = sizes.flatMap((bytes) =>
    forms.flatMap((form) => clients.map((each) => ({ bytes, form, clients: each }))),
  );
  const found = new Map<string, Measured[]>();
  // Round 0 is for V8, and is not counted. A single one measures nothing in any case.
  for (let round = rounds === 1 ? 1 : 0; round <= rounds; round++) {
    for (const cell of cells) {
      progress(`round ${round} of ${rounds}: ${cell.bytes} bytes, ${cell.form}, ${cell.clients} clients`);
      const counted = Math.min(requestsMax, Math.max(requestsMin, Math.floor(loadBytes[cell.form] / cell.bytes)));
      const requests = round === 0 && cell.form === 'binary' ? compilingRequests : counted;
      for (const [name, server, path] of started) {
        const measured = await measure(server, path, cell, requests);
        if (round === 0) continue;
        const key = keyOf(cell, name);
        found.set(key, [...(found.get(key) ?? []), measured]);
      }
    }
  }
  const of = (cell: Cell, server: Server, value: (one: Measured) => number): number =>
    median((found.get(keyOf(cell, server)) ?? []).map(value));
  const paired = (rival: Server, cell: Cell, value: (one: Measured) => number): number | undefined => {
    const [own, others] = [found.get(keyOf(cell, 'turntable')), found.get(keyOf(cell, rival))];
    return own && others && median(own.map((one, round) => value(one) / value(others[round]!)));
  };
  const rows = cells.flatMap((cell) => [...rivals, 'turntable' as const].map((server) => ({ cell, server })));
  return {
    table: tableOf('by the size of the body', rows, [
      ['>BYTES', ({ cell }) => String(cell.bytes)],
      ['FORM', ({ cell }) => cell.form],
      ['>CLIENTS', ({ cell }) => String(cell.clients)],
      ['SERVER', ({ server }) => server],
      ['>P50 MS', ({ cell, server }) => of(cell, server, (one) => one.p50Ms).toFixed(3)],
      ['>REQUESTS/S', ({ cell, server }) => of(cell, server, (one) => one.perSecond).toFixed(0)],
      ['>CPU MS', ({ cell, server }) => of(cell, server, (one) => one.ownMs).toFixed(3)],
      [">CHILD'S CPU MS", ({ cell, server }) => of(cell, server, (one) => one.childrenMs).toFixed(3)],
    ]),
    p50Ratio: (rival, cell) => paired(rival, cell, (one) => one.p50Ms),
    rateShare: (rival, cell) => paired(rival, cell, (one) => one.perSecond),
  };
}
