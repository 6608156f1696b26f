/**
 * How often functions are swapped on one GPU with one choice of plans: a host, and a random trace of requests over
 * HTTP.
 */
import { authorization, request, type HostAddress } from '../../src/cli/client.ts';
import {
  inferRequest,
  parseLiveInputs,
  poissonTrace,
  runLive,
  type LiveAnswer,
  type LiveRequest,
} from '../../src/replay/index.ts';
import { wholeBytes } from '../../src/schedule/index.ts';
import { startGpuServer, type GpuServer, type Patience } from '../gpu-server.ts';
import type { Servers } from '../servers.ts';
import { metric } from '../shared/requests.ts';
import { percentiles } from '../shared/statistics.ts';
import { openSnapshot, readScheduler } from '../simulated/host-snapshot.ts';

/** Which plans functions get: the setting `gpu.hybrid`. */
export type Pattern = 'off' | 'latency' | 'memory';
export const patterns: readonly Pattern[] = ['off', 'latency', 'memory'];

export interface HostSizes {
  /** Memory of each GPU for the engine, and pinned host memory for all functions. */
  readonly gpuBytes: number;
  readonly hostBytes: number;
  readonly hybridCores: number;
  readonly profileIterations: number;
}

export interface ChrionHost extends GpuServer {
  /** Functions that have more than one plan. */
  readonly variants: number;
  /** Share of all weights that the smallest plans of all functions keep on the GPU. */
  readonly leastShare: number;
}

/**
 * A host with every function planned.
 * @param untilMs by `performance.now()`
 * @throws BenchmarkNotPossible if its GPUs do not start; NotInTime
 */
export async function startChrionHost(
  servers: Servers,
  pattern: Pattern,
  names: readonly string[],
  sizes: HostSizes,
  environment: Readonly<Record<string, string>>,
  progress: (text: string) => void,
  untilMs = Infinity,
): Promise<ChrionHost> {
  const flags = {
    // As in the paper: a function is loaded as a whole, layer by layer, and evicted as a whole.
    '--gpu-mode': 'pipeswitch',
    '--gpu-policy': 'artifact',
    '--gpu-memory': `${sizes.gpuBytes}B`,
    '--gpu-host-memory': `${sizes.hostBytes}B`,
    '--gpu-profile-iterations': String(sizes.profileIterations),
    '--gpu-hybrid': pattern,
    '--gpu-hybrid-cores': String(sizes.hybridCores),
  };
  // Fewer functions would all fit.
  const patience: Patience | undefined =
    untilMs === Infinity ? undefined : { fewer: names.length, fewerFromMs: untilMs, untilMs };
  const options = { flags, functionCount: names.length, environment, allowsEmulated: true, progress, patience };
  const server = await startGpuServer(servers, options);
  return { ...server, ...(await variantsOf(server.address, names)) };
}

async function variantsOf(
  address: HostAddress,
  names: readonly string[],
): Promise<Pick<ChrionHost, 'variants' | 'leastShare'>> {
  const { functions } = await openSnapshot(address, await readScheduler(address), names);
  const offers = [...functions.values()].flatMap(({ sheet }) => sheet.gpus[0] ?? []);
  let [variants, wholes, leasts] = [0, 0, 0];
  for (const top of offers) {
    let least = top;
    while (least.smaller !== undefined) least = least.smaller;
    if (least !== top) variants++;
    wholes += wholeBytes(top);
    leasts += wholeBytes(least);
  }
  return { variants, leastShare: leasts / wholes };
}

export interface TraceSizes {
  readonly ratePerS: number;
  /** Number of requests before the measurement, and in it. */
  readonly warmupRequests: number;
  readonly requests: number;
  readonly sloMs: number;
  readonly seed: number;
}

export interface Swapping {
  readonly variants: number;
  readonly leastShare: number;
  readonly requests: number;
  /** Starts that had to load anything: the paper's number of swaps (Equation 13). */
  readonly loads: number;
  readonly onCpu: number;
  readonly failed: number;
  readonly violations: number;
  readonly shrinks: number;
  readonly growths: number;
  readonly evictions: number;
  readonly medianMs: number;
  readonly p99Ms: number;
}

/** Sends the trace, which depends only on the seed, and counts. */
export async function measureSwapping(
  { address, variants, leastShare }: ChrionHost,
  names: readonly string[],
  { ratePerS, warmupRequests, requests, sloMs, seed }: TraceSizes,
): Promise<Swapping> {
  const made = await requestsOf(address, names, seed);
  const fire = async (count: number, traceSeed: number): Promise<LiveAnswer[]> => {
    const answers: LiveAnswer[] = [];
    await runLive(poissonTrace({ functionNames: names, ratePerS, requests: count, seed: traceSeed }), {
      url: address.url,
      headers: authorization(address),
      requestOf: (index) => made[index]!,
      sloMsOf: () => sloMs,
      observer: { outcome: () => undefined, eviction: () => undefined, busy: () => undefined },
      onAnswer: (answer) => answers.push(answer),
    });
    return answers;
  };
  const warmedUp = await fire(warmupRequests, seed + 1);
  const problem = warmedUp.map(({ outcome }) => outcome.placement).find(({ kind }) => kind === 'failed');
  if (problem?.kind === 'failed') throw new Error(`a request failed: ${problem.reason}`);
  const before = await countsOf(address);
  const outcomes = (await fire(requests, seed)).map(({ outcome }) => outcome);
  const after = await countsOf(address);
  const latencies = percentiles(outcomes.map(({ arrivalMs, endMs }) => endMs - arrivalMs));
  const placements = outcomes.map(({ placement }) => placement);
  return {
    variants,
    leastShare,
    requests: outcomes.length,
    loads: placements.filter((placement) => placement.kind === 'gpu' && placement.residency !== 'warm').length,
    onCpu: placements.filter(({ kind }) => kind === 'cpu').length,
    failed: placements.filter(({ kind }) => kind === 'failed' || kind === 'shed').length,
    violations: outcomes.filter(
      ({ arrivalMs, endMs, placement: { kind } }) => endMs - arrivalMs > sloMs || kind === 'failed' || kind === 'shed',
    ).length,
    shrinks: after.shrinks - before.shrinks,
    growths: after.growths - before.growths,
    evictions: after.evictions - before.evictions,
    medianMs: latencies.p50Ms,
    p99Ms: latencies.p99Ms,
  };
}

async function countsOf({ url }: HostAddress): Promise<Pick<Swapping, 'shrinks' | 'growths' | 'evictions'>> {
  // A host that has changed nothing yet has no such series.
  const of = async (series: string): Promise<number> => (await metric(url, series)) || 0;
  return {
    shrinks: await of('turntable_plan_changes_total\\{.*direction="smaller"'),
    growths: await of('turntable_plan_changes_total\\{.*direction="larger"'),
    evictions: await of('turntable_evictions_total\\{.*cause="gpu '),
  };
}

/** One request for each function. */
async function requestsOf(address: HostAddress, names: readonly string[], seed: number): Promise<LiveRequest[]> {
  const made: LiveRequest[] = [];
  for (const [index, name] of names.entries()) {
    const metadata: unknown = await (await request(address, `/v2/models/${name}`)).json();
    made.push(inferRequest(name, parseLiveInputs(metadata, name), { seed: seed + index, varyingSize: 1 }));
  }
  return made;
}
