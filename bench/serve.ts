/**
 * More functions than the GPUs hold: BERT-Base at a steady rate while the number of functions grows, for each cold
 * start mode (Figure 13 of Jeong et al. 2023, "DeepPlan", 5.3.1, on this machine).
 */
import { formatBytes } from '../src/tools/index.ts';
import { probeCuda } from '../src/gpu/index.ts';
import { readMemory } from '../src/hardware/index.ts';
import { wholeBytes } from '../src/schedule/index.ts';
import { buildEmulatedDriver } from '../test/emulated-driver/build.ts';
import {
  BenchmarkNotPossible,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
  type Provenance,
} from './benchmark.ts';
import { Servers } from './servers.ts';
import { measureLevel } from './serve/level.ts';
import { startServing, writeFunctions, type ServingHost, type Sizes, type System } from './serve/subject.ts';
import {
  aimsOf,
  differenceTable,
  figuresOf,
  servingTable,
  simulatedTable,
  startTable,
  tightTable,
  type Cell,
  type Measured,
} from './serve/tables.ts';

/** As in the paper, with the policy of its server. */
const paperSystems: readonly System[] = (['baseline', 'pipeswitch', 'dha'] as const).map((mode) => ({
  name: mode,
  mode,
  policy: 'artifact',
  hybrid: 'off',
}));
/** This project's own settings. */
const ownSystem: System = { name: 'interleave, best', mode: 'interleave', policy: 'best', hybrid: 'memory' };

/** BERT-Base functions that all GPUs together should hold; each of the paper's GPUs has room for 25. */
const held = 25;
/** With fewer, the numbers of functions would hardly differ. */
const heldLeast = 5;
/** Numbers of functions relative to those that fit with all layers; the paper goes from 1 to 2.4. */
const shares = [0.8, 1, 1.2, 1.6, 2, 2.4];
/** Share of a GPU's memory that the host gives to weights (see src/host/gpu/gpu-host.ts). */
const weightShare = 0.85;
const bertBaseBytes = 438e6;
/** Slabs are not filled to the last byte. */
const pinnedPerWeight = 1.1;
const sloMs = 100;
const ratePerS = 100;
/** The paper's 100 ms relative to its warm start of BERT-Base (9.35 ms on a V100). */
const tightFactor = 100 / 9.35;
/** Another round starts only if it will end within this, so that a borrowed GPU is returned in time. */
const budgetMs = 9 * 60_000;

interface Plan {
  readonly sizes: Sizes;
  readonly systems: readonly System[];
  readonly shares: readonly number[];
  readonly rounds: number;
  readonly budgetMs: number;
  readonly ratePerS: number;
  readonly warmupRequests: number;
  readonly requests: number;
  readonly environment: Readonly<Record<string, string>>;
}

export const benchmark: Benchmark = {
  name: 'serve',
  description: 'how late are answers when more BERT-Base functions are called than the GPUs hold, by cold-start mode?',
  async run(options) {
    const plan = options.small ? await smallPlan() : await fullPlan(options.full === true, options.minutes);
    if (plan === undefined) return notBuilt();
    await using servers = await Servers.create();
    options.progress('writing the model');
    await writeFunctions(servers, plan.sizes, options.small);
    return await measure(servers, plan, options);
  },
};

/** @throws BenchmarkNotPossible without a GPU, or with too little memory */
async function fullPlan(isFull: boolean, minutes: number | undefined): Promise<Plan> {
  const found = await probeCuda();
  if (found.state === 'fails') {
    throw new BenchmarkNotPossible(
      `there is no GPU to serve from (${found.reason}). With one, BERT-Base would be served under ${functionsOf(held)} names at ` +
        `${ratePerS} requests/s from GPU memory for ${held} of them, in the modes ${paperSystems.map(({ name }) => name).join(', ')}, ` +
        'which takes about ten minutes; --emulated goes the same way on a driver that is emulated on the CPU',
    );
  }
  const { devices } = found;
  const leastBytes = Math.min(...devices.map(({ totalBytes }) => totalBytes));
  const { usableBytes } = readMemory();
  // Both leave room for other programs, and for what functions need beside their weights.
  const fitting = Math.min(
    held,
    Math.floor((0.8 * weightShare * leastBytes * devices.length) / bertBaseBytes),
    Math.floor((0.6 * usableBytes) / (pinnedPerWeight * bertBaseBytes * shares.at(-1)!)),
  );
  if (fitting < heldLeast) {
    throw new BenchmarkNotPossible(
      `${heldLeast} BERT-Base functions must fit on the GPUs, and ${functionsOf(heldLeast)} in pinned host memory; here are ` +
        `${devices.length} GPUs of ${formatBytes(leastBytes)} and ${formatBytes(usableBytes)} of host memory to use`,
    );
  }
  const sizes = sizesOf(fitting, devices.length);
  return {
    sizes,
    systems: isFull ? [...paperSystems, ownSystem] : paperSystems,
    shares,
    rounds: 3,
    budgetMs: minutes === undefined ? (isFull ? Infinity : budgetMs) : minutes * 60_000,
    ratePerS,
    warmupRequests: 200,
    requests: 1000,
    environment: {},
  };
}

const functionsOf = (fitting: number): number => Math.ceil(fitting * shares.at(-1)!);

function sizesOf(fitting: number, gpuCount: number): Sizes {
  const functions = functionsOf(fitting);
  return {
    // The paper's sequence length.
    model: { sequence: 384 },
    // Half a function more, so that no rounding costs one.
    gpuBytes: Math.ceil(((fitting / gpuCount + 0.5) * bertBaseBytes) / weightShare),
    hostBytes: Math.ceil(functions * bertBaseBytes * pinnedPerWeight),
    functions,
    profileIterations: 10,
  };
}

/** Undefined if the emulated driver cannot be built. */
async function smallPlan(): Promise<Plan | undefined> {
  const emulated = await buildEmulatedDriver();
  if (emulated === undefined) return undefined;
  return {
    sizes: {
      model: { layers: 1, hidden: 128, heads: 2, vocabulary: 200, positions: 32, sequence: 8 },
      gpuBytes: 3.5 * 2 ** 20,
      hostBytes: 2 ** 25,
      functions: 6,
      profileIterations: 1,
    },
    // One host each; the last one reads weights from host memory.
    systems: [paperSystems[0]!, paperSystems.at(-1)!],
    shares: [1, 2],
    rounds: 1,
    budgetMs: 0,
    ratePerS: 25,
    warmupRequests: 5,
    requests: 20,
    environment: {
      ...emulated.environment,
      TURNTABLE_EMULATOR: JSON.stringify({ devices: [{ memoryBytes: 2 ** 26 }] }),
    },
  };
}

/** The part that does not depend on the system. */
interface Frame extends Omit<Measured, 'cells'> {
  readonly gpus: number;
}

async function measure(servers: Servers, plan: Plan, options: BenchmarkOptions): Promise<BenchmarkResult> {
  const { systems, rounds, sizes, environment } = plan;
  const startedMs = performance.now();
  const cells: Cell[] = [];
  let frame: Frame | undefined;
  let round = 0;
  for (let roundMs = 0; round < rounds; round++) {
    const elapsedMs = performance.now() - startedMs;
    if (round > 0 && elapsedMs + roundMs > plan.budgetMs) break;
    for (let turn = 0; turn < systems.length; turn++) {
      // Each round begins with another system, so that changes over time affect all of them.
      const system = systems[(turn + round) % systems.length]!;
      const say = (text: string): void => options.progress(`round ${round + 1}, ${system.name}: ${text}`);
      say('the host starts');
      const host = await startServing(servers, system, sizes, environment, {
        allowsEmulated: options.small,
        progress: say,
      });
      try {
        frame ??= frameOf(host, plan);
        cells.push(...(await measureSystem(host, system, frame, plan, { seed: options.seed + round, say })));
      } finally {
        await host.stop();
      }
    }
    roundMs = performance.now() - startedMs - elapsedMs;
  }
  if (frame === undefined) throw new Error('nothing was measured');
  return resultOf({ ...frame, cells }, round, plan, options.small);
}

/** The first host's mode loads all layers: its offers say how many functions fit as a whole. */
function frameOf({ snapshot }: ServingHost, plan: Plan): Frame {
  const { gpus } = snapshot.scheduler;
  const [any] = snapshot.functions.values();
  const offers = any?.sheet.gpus ?? [];
  const capacity = gpus.reduce((sum, { capacityBytes }, gpu) => {
    const offer = offers[gpu];
    return sum + (offer === null || offer === undefined ? 0 : Math.floor(capacityBytes / wholeBytes(offer)));
  }, 0);
  const levels = plan.shares.map((share) => Math.min(plan.sizes.functions, Math.max(1, Math.round(share * capacity))));
  return {
    gpus: gpus.length,
    capacity,
    levels: [...new Set(levels)],
    sloMs,
    tightSloMs: Math.round(10 * tightFactor * (offers[0]?.warmMs ?? 0)) / 10,
  };
}

async function measureSystem(
  host: ServingHost,
  { name }: System,
  { levels, tightSloMs }: Frame,
  { ratePerS: rate, warmupRequests, requests }: Plan,
  { seed, say }: { readonly seed: number; readonly say: (text: string) => void },
): Promise<Cell[]> {
  const cells: Cell[] = [];
  for (const functions of levels) {
    say(`${functions} functions`);
    const level = await measureLevel(host, {
      functions,
      ratePerS: rate,
      warmupRequests,
      requests,
      seed,
      sloMs,
      tightSloMs,
    });
    cells.push({ ...level, system: name });
  }
  return cells;
}

function resultOf(measured: Frame & Measured, rounds: number, plan: Plan, isSmall: boolean): BenchmarkResult {
  const { gpus, capacity, tightSloMs } = measured;
  const provenance: Provenance = isSmall ? emulatedOnly : { kind: 'measured' };
  const names = plan.systems.map(({ name }) => name);
  return {
    settings: {
      rounds,
      gpus,
      functionsThatFit: capacity,
      gpuMemoryBytes: plan.sizes.gpuBytes,
      ratePerS: plan.ratePerS,
      requestsPerLevel: plan.requests,
      warmupRequests: plan.warmupRequests,
      sloMs,
      tightSloMs,
      policy: 'artifact',
    },
    tables: [
      servingTable(measured, names, provenance),
      tightTable(measured, names, provenance),
      startTable(measured, names, provenance),
      simulatedTable(measured, names, provenance),
      differenceTable(measured, names, provenance),
    ],
    figures: figuresOf(measured, names),
    aims: isSmall ? [] : aimsOf(measured),
    limits: [
      ...(isSmall ? ['any time: the driver was the emulated one'] : []),
      'the client runs on the machine that serves; requests leave when they are due, and latency counts from then',
      'all functions are of one model with the same weights under different names; none shares memory with another',
      'cold counts every start that found any layer missing; each figure is the median over the rounds',
      ...(gpus === 1 ? ['parallel transmission over several links, for want of a second GPU'] : []),
    ],
  };
}

const emulatedOnly = {
  kind: 'estimated',
  from: 'nothing: the driver is the emulated one, and its times mean nothing',
} as const;

function notBuilt(): BenchmarkResult {
  return {
    settings: { gpus: 0 },
    tables: [
      {
        title: 'p99, goodput and cold starts by number of functions',
        provenance: emulatedOnly,
        columns: [{ title: 'SYSTEM' }, { title: 'WHY NOT' }],
        rows: paperSystems.map(({ name }) => [name, 'not run: the emulated driver needs g++']),
      },
    ],
    figures: {},
    limits: ['anything: the emulated driver could not be built'],
  };
}
