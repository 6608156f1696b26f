/**
 * Functions on a GPU and CPU cores (Yang et al., "Chrion"): how often nine recurrent functions are swapped in part of
 * the memory that they need (Table 7, live), and the latency of the baseline network under each pattern (a column of
 * Table 6, on this machine).
 */
import { join } from 'node:path';
import { poolSockets } from '../src/cpu/index.ts';
import { probeCuda } from '../src/gpu/index.ts';
import { readMemory } from '../src/hardware/index.ts';
import { emulatedEnvironment } from '../test/support/emulator.ts';
import {
  tableOf,
  mustBuildDriver,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
  type BenchmarkTable,
  type Provenance,
} from './benchmark.ts';
import { Budget, inTime, NotInTime } from './budget.ts';
import { fitKeptProfiles, fittedGraph } from './chrion/fitted-profiles.ts';
import {
  nineFunctions,
  weightBytesOf,
  writeFunctions,
  type RecurrentFunction,
  type Scale,
} from './chrion/functions.ts';
import { measurePatterns, type MeasuredPattern, type PatternSizes } from './chrion/patterns.ts';
import { heldShare } from './papers/swapping.ts';
import {
  measureSwapping,
  patterns,
  startChrionHost,
  type HostSizes,
  type Swapping,
  type TraceSizes,
} from './chrion/swapping.ts';
import { aimsOf, figuresOf, patternTable, swappingTable, swapRate, type Swapped } from './chrion/tables.ts';
import { Servers } from './servers.ts';

/** Share of a GPU's memory that the host gives to weights (see src/host/gpu/gpu-host.ts). */
const weightShare = 0.85;
const all = 9;
/** Cores that the paper's divided models use at most. */
const hybridCoresMax = 8;

interface Plan {
  /** The first so many of the nine. */
  readonly functions: number;
  readonly scale: Scale;
  readonly trace: Omit<TraceSizes, 'seed'>;
  /** Traces of so many seeds; the one with the median rate of swaps counts. */
  readonly traces: number;
  readonly hybridCores: number;
  readonly profileIterations: number;
  readonly hostBytes: number;
  /** Undefined if timings of the baseline network would mean nothing. */
  readonly network: PatternSizes | undefined;
  /** Undefined for a GPU of this machine. */
  readonly emulated: Readonly<Record<string, string>> | undefined;
  readonly cacheName: string;
}

export const benchmark: Benchmark = {
  name: 'chrion',
  description:
    'how often are functions swapped when plans over GPU and CPU make them smaller, and what does that cost?',
  async run(options) {
    const budget = new Budget((options.minutes ?? Infinity) * 60_000);
    const plan = await planFor(options);
    await using servers = await Servers.create();
    const functions = nineFunctions(plan.scale).slice(0, plan.functions);
    options.progress('writing the models');
    await writeFunctions(servers, functions, plan.trace.sloMs, plan.cacheName);
    const leftOut: string[] = [];
    const swapped = await swapAll(servers, functions, plan, options, budget, leftOut);
    const found = await network(servers, plan, options, budget, leftOut);
    return resultOf(functions, swapped, found, plan, options, leftOut);
  },
};

/** The baseline network under every pattern. None if there was no time for it. */
async function network(
  servers: Servers,
  plan: Plan,
  { progress }: BenchmarkOptions,
  budget: Budget,
  leftOut: string[],
): Promise<MeasuredPattern[]> {
  const { network: sizes, emulated } = plan;
  if (sizes === undefined) return [];
  try {
    return await measurePatterns(
      servers.folder,
      sizes,
      emulated ?? {},
      (measured) => (emulated === undefined ? measured : fittedGraph(measured, sizes.batch)),
      progress,
      budget.untilMs,
    );
  } catch (error) {
    if (!(error instanceof NotInTime)) throw error;
    leftOut.push(`the baseline network under every pattern: ${error.message}`);
    return [];
  }
}

/** @throws BenchmarkNotPossible without a GPU and without a compiler for the emulated driver, which tells the counts */
async function planFor({ small }: BenchmarkOptions): Promise<Plan> {
  const cpuCores = poolSockets(Number.MAX_SAFE_INTEGER).flat().length;
  // One core is left to the pools and the host.
  const hybridCores = Math.min(hybridCoresMax, Math.max(1, cpuCores - 1));
  const found = small ? undefined : await probeCuda();
  const isReal = found?.state === 'opens' && !found.devices.some(({ name }) => name.startsWith('Emulated'));
  if (isReal) {
    const network = { layers: 12, batch: 8, hidden: 64, sequence: 96, rounds: 21, profileIterations: 10 };
    return {
      functions: all,
      scale: { layers: 1, width: 8, sequence: 0.5, batch: 1 / 8 },
      trace: { ratePerS: 10, warmupRequests: 50, requests: 400, sloMs: 100 },
      traces: 1,
      hybridCores,
      profileIterations: 10,
      hostBytes: Math.floor(readMemory().usableBytes / 4),
      network: { ...network, hybridCores, cpuCores, hostBytes: 2 ** 30 },
      emulated: undefined,
      cacheName: 'chrion',
    };
  }
  const driver = await mustBuildDriver();
  const network = { layers: 4, batch: 1, hidden: 32, sequence: 4, rounds: 2, profileIterations: 1 };
  const memory = { hostBytes: 2 ** 24, gpuBytes: 2 ** 24, slabBytes: 2 ** 20 };
  return {
    // With fewer, half of the memory is too little for a run; each more is planned and measured by every host.
    functions: small ? 4 : all,
    scale: small
      ? { layers: 0.25, width: 1, sequence: 1 / 48, batch: 1 / 8 }
      : { layers: 1, width: 1, sequence: 1 / 8, batch: 1 / 8 },
    // Longer than any run: times mean nothing here.
    trace: small
      ? { ratePerS: 40, warmupRequests: 6, requests: 20, sloMs: 60_000 }
      : { ratePerS: 10, warmupRequests: 30, requests: 200, sloMs: 60_000 },
    // A trace of hundreds of requests is a few percent off by chance.
    traces: small ? 1 : 5,
    // As in the paper, whatever cores there are: the counts depend only on the plans.
    hybridCores: small ? hybridCores : hybridCoresMax,
    profileIterations: 1,
    hostBytes: 2 ** 27,
    network: small ? { ...network, ...memory, hybridCores, cpuCores } : undefined,
    emulated: emulatedEnvironment(driver, [{ memoryBytes: 2 ** 26 }]),
    cacheName: 'chrion-emulated',
  };
}

async function swapAll(
  servers: Servers,
  functions: readonly RecurrentFunction[],
  plan: Plan,
  { small, seed, progress }: BenchmarkOptions,
  budget: Budget,
  leftOut: string[],
): Promise<Swapped[]> {
  const names = functions.map(({ name }) => name);
  const environment = plan.emulated ?? {};
  const sizes: HostSizes = {
    gpuBytes: gpuBytesFor(functions),
    hostBytes: plan.hostBytes,
    hybridCores: plan.hybridCores,
    profileIterations: plan.profileIterations,
  };
  if (plan.emulated !== undefined) {
    const say = (text: string): void => progress(`measuring profiles: ${text}`);
    await (await startChrionHost(servers, 'memory', names, sizes, environment, say)).stop();
    const batches = new Map(functions.map(({ name, batch }) => [name, batch]));
    await fitKeptProfiles(join(servers.folder, 'data', 'plans', 'profiles'), (name) => batches.get(name) ?? 1);
  }
  const swapped: Swapped[] = [];
  const isLimited = budget.leftMs < Infinity;
  const wanted = patterns.filter((pattern) => !(small && pattern === 'latency'));
  // Shortest on time, the two that differ most come first.
  const ordered = isLimited ? wanted.toSorted((a, b) => Number(a === 'latency') - Number(b === 'latency')) : wanted;
  // One host for each pattern.
  for (const [place, pattern] of ordered.entries()) {
    const say = (text: string): void => progress(`gpu.hybrid ${pattern}: ${text}`);
    // As much for each pattern, and for the network.
    const untilMs = budget.shareMs(1 / (ordered.length - place + (plan.network === undefined ? 0 : 1)));
    try {
      say('the host starts');
      const host = await startChrionHost(servers, pattern, names, sizes, environment, say, budget.untilMs);
      try {
        const trace = isLimited ? shortened(plan.trace, untilMs, budget) : plan.trace;
        const measured: Swapping[] = [];
        for (let index = 0; index < plan.traces; index++) {
          say(`${trace.requests} requests, trace ${index + 1} of ${plan.traces}`);
          const sent = measureSwapping(host, names, { ...trace, seed: seed + 10 * index });
          measured.push(await inTime(sent, budget.untilMs));
        }
        measured.sort((a, b) => swapRate(a) - swapRate(b));
        swapped.push({ pattern, ...measured[Math.floor(measured.length / 2)]! });
        if (trace.requests < plan.trace.requests) {
          leftOut.push(
            `${plan.trace.requests - trace.requests} of the ${plan.trace.requests} requests with gpu.hybrid ${pattern}`,
          );
        }
      } finally {
        await host.stop();
      }
    } catch (error) {
      if (!(error instanceof NotInTime)) throw error;
      leftOut.push(`gpu.hybrid ${pattern}: ${error.message}`);
    }
  }
  return swapped;
}

/** Fewer requests than these say nothing about how often functions are swapped. */
const requestsLeast = 60;

/** As many requests as arrive in time, at the same rate. @throws NotInTime if these are too few */
function shortened(trace: Plan['trace'], untilMs: number, { untilMs: endMs }: Budget): Plan['trace'] {
  const { ratePerS, warmupRequests, requests } = trace;
  const until = (ms: number): number => Math.floor(((ms - performance.now()) / 1000) * ratePerS);
  const fitting = Math.min(requests + warmupRequests, Math.max(until(untilMs), requestsLeast));
  if (fitting > until(endMs)) throw new NotInTime('its functions were planned too late');
  const warmup = Math.min(warmupRequests, Math.floor(fitting / 4));
  return { ...trace, warmupRequests: warmup, requests: Math.min(requests, fitting - warmup) };
}

const gpuBytesFor = (functions: readonly RecurrentFunction[]): number =>
  Math.ceil((heldShare * functions.reduce((sum, each) => sum + weightBytesOf(each), 0)) / weightShare);

function resultOf(
  functions: readonly RecurrentFunction[],
  swapped: readonly Swapped[],
  found: readonly MeasuredPattern[],
  plan: Plan,
  { small, minutes }: BenchmarkOptions,
  leftOut: readonly string[],
): BenchmarkResult {
  const isReal = plan.emulated === undefined;
  const provenance: Provenance = isReal ? { kind: 'measured' } : emulatedOnly;
  const share = `${functions.length} recurrent functions in memory for ${(100 * heldShare).toFixed(0)}% of their weights`;
  const label = isReal ? '' : '; emulated driver: counts are real, times mean nothing';
  const network = plan.network;
  const title = `LSTM of ${network?.layers ?? 12} layers, batch ${network?.batch ?? 8}, width ${network?.hidden ?? 64}, ${network?.sequence ?? 96} steps, by pattern`;
  return {
    settings: {
      driver: isReal ? 'GPU' : 'emulated',
      functions: functions.length,
      weightBytes: functions.reduce((sum, each) => sum + weightBytesOf(each), 0),
      gpuMemoryBytes: gpuBytesFor(functions),
      hybridCores: plan.hybridCores,
      ...plan.trace,
      traces: plan.traces,
      gpuMode: 'pipeswitch',
      policy: 'artifact',
    },
    tables: [
      swapped.length > 0
        ? swappingTable(swapped, provenance, isReal, `Table 7 live: ${share}${label}`)
        : notMeasured(`Table 7 live: ${share}`, [...patterns], `the ${minutes} minutes were too few`),
      found.length > 0
        ? patternTable(found, provenance, `${title}${label}`)
        : notMeasured(title, patternNames, isReal ? `the ${minutes} minutes were too few` : 'there is no GPU here'),
    ],
    figures: figuresOf(swapped, found, isReal),
    aims: small || leftOut.length > 0 ? [] : aimsOf(swapped, found),
    limits: [
      ...leftOut.map((what) => `${what}: the ${minutes} minutes were too few`),
      ...(isReal
        ? []
        : [
            'any time, and with it how many requests are late: the driver is emulated on the CPU. Profiles have the times that ' +
              "Chrion's paper implies for its own machine, so that plans, loads, shrinks and evictions are as they would be there",
          ]),
      "the paper's memory: its networks keep their activations on the GPU, here all functions share one arena, so that widths " +
        'are scaled until weights decide what fits',
      "networks as long as the paper's: an eighth of the steps is what the emulated driver gets through. The longer they are, the more layers " +
        'the fastest plan keeps whole, for it is the steps of a layer that overlap: with a quarter of the steps the latency variants load at ' +
        "37.0% of starts. The paper's plans save the activations of each step as well, which our functions share",
      'VARIANTS are functions that have more than one plan; LEAST is what the smallest plans keep of the weights of all functions',
      'a pattern without a row came to the GPU alone or the CPU alone; CPU alone is measured with all cores, and predicted for those ' +
        'of divided models',
      'loads are starts that found any layer missing; a function that grows to a larger plan beside a run loads as well, and is ' +
        'counted as grown',
    ],
  };
}

const patternNames = ['GPU alone', 'CPU alone', 'Latency-Optimal', 'Memory-Optimal', 'each variant'];

function notMeasured(title: string, names: readonly string[], why: string): BenchmarkTable {
  return tableOf(
    title,
    names,
    [
      ['PATTERN', (name) => name],
      ['WHY NOT', () => `not measured: ${why}`],
    ],
    emulatedOnly,
  );
}

const emulatedOnly = {
  kind: 'estimated',
  from: "the times that Chrion's paper implies, on the emulated driver: counts are real, times mean nothing",
} as const;
