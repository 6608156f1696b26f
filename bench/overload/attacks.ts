/**
 * Clients without a key or manners that fill the memory of a host with `limits.inFlight` of 128 MiB, each in its own
 * way. The host must stay below 300 MB and answer an honest caller meanwhile.
 */
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { ElementType, GraphBuilder, serializeModel } from '../../src/onnx/index.ts';
import { tableOf, type BenchmarkOptions, type BenchmarkResult, type BenchmarkTable } from '../benchmark.ts';
import { sumGraph } from '../chaos/models.ts';
import { freePort, memoryOf, Program, Servers } from '../servers.ts';

const residentBytesMax = 300e6;
const inFlight = '128MiB';
const outputNumbers = 8_000_000;
/** How long an attack goes on. */
const [attackMsMin, attackMsMax, smallMs] = [5000, 12_000, 1500];
/** It has done its worst when the host's peak has not grown by so much for so long. */
const [grownBytesMin, steadyMs] = [2e6, 2500];
/** The host is looked at until it has given back all but so much of what it had before. */
const backShare = 1.2;

interface Attack {
  readonly name: string;
  readonly kind: string;
  readonly count: number;
  /** What `slow-reads` asks for. */
  readonly path?: string;
  /** Functions that the host has besides. */
  readonly functions?: number;
}

const attacks: readonly Attack[] = [
  { name: 'gRPC bodies that never end', kind: 'grpc-endless', count: 30 },
  { name: 'gzip over gRPC', kind: 'grpc-gzip', count: 40 },
  { name: 'replies over gRPC read slowly', kind: 'grpc-slow-readers', count: 100 },
  { name: 'replies over gRPC never read', kind: 'grpc-unread', count: 40 },
  { name: 'metadata over gRPC', kind: 'grpc-metadata', count: 20 },
  { name: 'streams reset at once', kind: 'grpc-reset', count: 20 },
  { name: 'bodies for an unknown method', kind: 'grpc-unknown', count: 20 },
  { name: 'idle connections over gRPC', kind: 'grpc-sessions', count: 900 },
  { name: 'replies over HTTP read slowly', kind: 'http-slow-readers', count: 100 },
  { name: 'JSON over HTTP read slowly', kind: 'http-slow-json', count: 250 },
  { name: 'gzip over HTTP', kind: 'http-gzip', count: 120 },
  { name: 'lists of 800 functions', kind: 'slow-reads', count: 250, path: '/api/functions', functions: 800 },
  { name: 'metrics of 800 functions', kind: 'slow-reads', count: 250, path: '/metrics', functions: 800 },
  { name: 'downloads of models read slowly', kind: 'slow-reads', count: 250, path: 'blob' },
  { name: 'pipelined requests', kind: 'pipelined', count: 60 },
  { name: 'headers that never end', kind: 'headers', count: 900 },
  { name: 'small bodies that never end', kind: 'small-bodies', count: 900 },
  { name: 'forms of many parts', kind: 'multipart', count: 20 },
];
export const attackNames = attacks.map(({ name }) => name);
const smallNames: ReadonlySet<string> = new Set(['replies over HTTP read slowly', 'gzip over gRPC']);

export interface Attacked {
  readonly name: string;
  readonly answers: string;
  readonly beforeBytes: number;
  readonly peakBytes: number;
  readonly afterBytes: number;
  readonly honest: number;
  readonly honestAnswered: number;
}

export async function runAttacks(
  { small, progress }: Pick<BenchmarkOptions, 'small' | 'progress'>,
  only: readonly string[] | undefined,
): Promise<Attacked[]> {
  const found: Attacked[] = [];
  for (const attack of attacks) {
    if (small && !smallNames.has(attack.name)) continue;
    if (only !== undefined && !only.includes(attack.name) && !only.includes('attacks')) continue;
    progress(`attack: ${attack.name}`);
    found.push(await attacked(attack, small));
  }
  return found;
}

async function attacked({ name, kind, count, path, functions = 0 }: Attack, small: boolean): Promise<Attacked> {
  await using servers = await Servers.create();
  await servers.addFunction('sum', sumGraph(1), { slo: '5s' });
  await servers.addFunction('wide', wideGraph(outputNumbers), { slo: '60s' });
  await servers.addFunction('long', wideGraph(250_000), { slo: '60s' });
  for (let index = 0; index < functions; index++) await servers.addFunction(`f-${index}`, sumGraph(1), {});
  const grpcPort = await freePort();
  const flags = ['--gpu-use', 'off', '--grpc-port', String(grpcPort), '--limits-in-flight', inFlight];
  const { url, process: host } = await servers.startHost(flags);
  const call = async (): Promise<boolean> => {
    const body = '{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}';
    const asked = fetch(`${url}/v2/models/sum/infer`, { method: 'POST', body, signal: AbortSignal.timeout(20_000) });
    return await asked.then(
      async (reply) => {
        await reply.arrayBuffer();
        return reply.status === 200;
      },
      () => false,
    );
  };
  await call();
  const asked = path === 'blob' ? await publishLarge(url) : path;
  const beforeBytes = await memoryOf(host.pid!, 'VmRSS');
  await writeFile(`/proc/${host.pid}/clear_refs`, '5');
  const order = { kind, count: small ? Math.min(count, 10) : count, url, grpcPort, path: asked };
  using attacker = new Program('overload/attacker.mjs', order);
  await attacker.line();
  let [honest, honestAnswered, peakBytes] = [0, 0, 0];
  const beginMs = performance.now();
  // Until the memory has grown no further for a while, or for as long as it grows.
  for (let grewMs = beginMs, nowMs = beginMs; ; honest++, nowMs = performance.now()) {
    if (nowMs - beginMs >= (small ? smallMs : attackMsMax)) break;
    if (nowMs - beginMs >= attackMsMin && nowMs - grewMs >= steadyMs) break;
    if (await call()) honestAnswered++;
    await pause(small ? 100 : 250);
    const bytes = await memoryOf(host.pid!, 'VmHWM');
    if (bytes > peakBytes + grownBytesMin) grewMs = performance.now();
    peakBytes = bytes;
  }
  attacker.closeInput();
  const answers = JSON.parse(await attacker.line()) as Record<string, number>;
  let afterBytes = Infinity;
  for (let looks = 0; looks < (small ? 1 : 10) && afterBytes > backShare * beforeBytes; looks++) {
    await pause(small ? 0 : 500);
    await call();
    afterBytes = await memoryOf(host.pid!, 'VmRSS');
  }
  return {
    name: `${order.count} x ${name}`,
    answers: Object.entries(answers)
      .map(([how, times]) => `${times} ${how}`)
      .join(', '),
    beforeBytes,
    peakBytes,
    afterBytes,
    honest,
    honestAnswered,
  };
}

/** Publishes a model of 32 MB. Returns the path of its file. */
async function publishLarge(url: string): Promise<string> {
  const graph = new GraphBuilder('large');
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  const weight = graph.weight('w', [1, outputNumbers], new Float32Array(outputNumbers).fill(0.5));
  graph.output(graph.node('Mul', [x, weight]), ElementType.FLOAT, [1, outputNumbers], 'y');
  const body = serializeModel(graph.build());
  await fetch(`${url}/functions/large`, { method: 'PUT', body });
  return `/blobs/sha256:${createHash('sha256').update(body).digest('hex')}`;
}

/** A number in, many out. */
function wideGraph(numbers: number): GraphBuilder {
  const graph = new GraphBuilder('wide');
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  const shape = graph.constant({ ints: [1, numbers] });
  graph.output(graph.node('Expand', [x, shape]), ElementType.FLOAT, [1, numbers], 'y');
  return graph;
}

const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(0);

export function attacksTable(found: readonly Attacked[]): BenchmarkTable {
  return tableOf(
    `memory of a host under attack, limits.inFlight ${inFlight}, beside a caller that asks all the time`,
    found,
    [
      ['ATTACK', ({ name }) => name],
      ['>BEFORE MB', ({ beforeBytes }) => megabytes(beforeBytes)],
      ['>PEAK MB', ({ peakBytes }) => megabytes(peakBytes)],
      ['>AFTER MB', ({ afterBytes }) => megabytes(afterBytes)],
      ['>CALLS ANSWERED', ({ honest, honestAnswered }) => `${honestAnswered} of ${honest}`],
      ['ATTACKERS GOT', ({ answers }) => answers],
    ],
  );
}

export const attackAims = (found: readonly Attacked[]): NonNullable<BenchmarkResult['aims']> =>
  found.flatMap(({ name, peakBytes, honest, honestAnswered }) => [
    {
      aim: `${name}: under ${megabytes(residentBytesMax)} MB`,
      met: peakBytes <= residentBytesMax,
      reached: `${megabytes(peakBytes)} MB`,
    },
    {
      aim: `${name}: an honest caller is answered`,
      met: honestAnswered > 0,
      reached: `${honestAnswered} of ${honest}`,
    },
  ]);
