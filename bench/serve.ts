/**
 * More functions than the GPUs hold: BERT-Base at a steady rate while the number of functions grows, for each cold
 * start mode (Figure 13 of Jeong et al. 2023, "DeepPlan", 5.3.1, on this machine).
 */
import { formatBytes } from '../src/tools/index.ts';
import { probeCuda } from '../src/gpu/index.ts';
import { readMemory } from '../src/hardware/index.ts';
import { emulatedEnvironment } from '../test/support/emulator.ts';
import {
  BenchmarkNotPossible,
  emulatedOnly,
  mustBuildDriver,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
  type Provenance,
} from './benchmark.ts';
import { Budget } from './budget.ts';
import { Servers } from './servers.ts';
import { measureRounds, type Plan, type Rounds } from './serve/rounds.ts';
import { writeFunctions, type Sizes, type System } from './serve/subject.ts';
import {
  aimsOf,
  differenceTable,
  figuresOf,
  servingTable,
  simulatedTable,
  startTable,
  tightTable,
} from './serve/tables.ts';

/** As in the paper, with the policy of its server. */
const paperSystems: readonly System[] = (['baseline', 'pipeswitch', 'dha'] as const).map((mode) => ({
  name: mode,
  mode,
  policy: 'artifact',
  hybrid: 'off',
}));
/** This project's own settings; its name says which mode is in effect where no other GPU helps to load. */
const ownSystemOn = (gpus: number): System => ({
  name: gpus === 1 ? 'interleave (dha, 1 link: one GPU), best' : 'interleave, best',
  mode: 'interleave',
  policy: 'best',
  hybrid: 'memory',
});

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

/** With little time: the most telling numbers of functions first, and none that needs more functions than twice those held. */
const sharesInTime = [0.8, 1.2, 2, 1, 1.6];
/** The most telling systems first. */
const systemsInTime: readonly System[] = [paperSystems[0]!, paperSystems[2]!, paperSystems[1]!];
/** Functions that are to be held for each minute: all of them have to be planned, by each host. */
const heldPerMinute = 5;
/** With fewer minutes each level has half of the requests. */
const wholeLevelsMinutes = 5;

export const benchmark: Benchmark = {
  name: 'serve',
  description: 'how late are answers when more BERT-Base functions are called than the GPUs hold, by cold-start mode?',
  async run(options) {
    const { small, seed, minutes, progress } = options;
    const budget = minutes === undefined ? undefined : new Budget(minutes * 60_000);
    const plan = small ? await smallPlan() : await fullPlan(options.full === true, minutes);
    await using servers = await Servers.create();
    progress('writing the model');
    await writeFunctions(servers, plan.sizes, small);
    const given = { seed, allowsEmulated: small, progress };
    const measured = await measureRounds(servers, plan, given, budget);
    return resultOf(measured, plan, options);
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
  const common = { sloMs, tightFactor, ratePerS, environment: {} };
  if (minutes !== undefined) {
    const inMinutes = Math.min(fitting, Math.max(heldLeast, Math.floor(heldPerMinute * minutes)));
    const part = minutes < wholeLevelsMinutes ? 0.5 : 1;
    return {
      ...common,
      fitting: inMinutes,
      sizes: sizesOf(inMinutes, devices.length, sharesInTime),
      systems: isFull ? [...systemsInTime, ownSystemOn(devices.length)] : systemsInTime,
      shares: sharesInTime,
      rounds: Infinity,
      budgetMs: Infinity,
      warmupRequests: 200 * part,
      requests: 1000 * part,
    };
  }
  return {
    ...common,
    fitting,
    sizes: sizesOf(fitting, devices.length, shares),
    systems: isFull ? [...paperSystems, ownSystemOn(devices.length)] : paperSystems,
    shares,
    rounds: 3,
    budgetMs: isFull ? Infinity : budgetMs,
    warmupRequests: 200,
    requests: 1000,
  };
}

const functionsOf = (fitting: number, at: readonly number[] = shares): number => Math.ceil(fitting * Math.max(...at));

function sizesOf(fitting: number, gpuCount: number, at: readonly number[]): Sizes {
  const functions = functionsOf(fitting, at);
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

async function smallPlan(): Promise<Plan> {
  const emulated = await mustBuildDriver();
  return {
    sizes: {
      model: { layers: 1, hidden: 128, heads: 2, vocabulary: 200, positions: 32, sequence: 8 },
      gpuBytes: 3.5 * 2 ** 20,
      hostBytes: 2 ** 25,
      functions: 6,
      profileIterations: 1,
    },
    fitting: 3,
    // One host each; the last one reads weights from host memory.
    systems: [paperSystems[0]!, paperSystems.at(-1)!],
    shares: [1, 2],
    rounds: 1,
    budgetMs: 0,
    sloMs,
    tightFactor,
    ratePerS: 25,
    warmupRequests: 5,
    requests: 20,
    environment: emulatedEnvironment(emulated, [{ memoryBytes: 2 ** 26 }]),
  };
}

function resultOf(
  { frame, cells, rounds, leftOut }: Rounds,
  plan: Plan,
  { small: isSmall, minutes }: BenchmarkOptions,
): BenchmarkResult {
  if (frame === undefined || cells.length === 0) {
    throw new BenchmarkNotPossible(`${minutes} minutes were too few: ${leftOut.at(-1) ?? 'no host was started'}`);
  }
  const systemOf = ({ name }: System): boolean => cells.some(({ system }) => system === name);
  const hasLevel = (level: number): boolean => cells.some(({ functions }) => functions === level);
  const measured = { ...frame, cells, levels: frame.levels.filter(hasLevel) };
  const missing = [
    ...plan.systems.filter((system) => !systemOf(system)).map(({ name }) => `the mode '${name}'`),
    ...frame.levels.filter((level) => !hasLevel(level)).map((level) => `${level} functions`),
    ...leftOut,
  ];
  const { gpus, capacity, tightSloMs } = measured;
  const provenance: Provenance = isSmall ? emulatedOnly : { kind: 'measured' };
  const names = plan.systems.filter(systemOf).map(({ name }) => name);
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
      ...missing.map((what) => `${what}: the ${minutes} minutes were too few`),
      ...(minutes === undefined
        ? []
        : [
            `the whole run, which has ${functionsOf(held)} functions, ${shares.length} numbers of functions and three rounds: ` +
              'this one had to fit into its minutes',
          ]),
      'cold counts every start that found any layer missing; each figure is the median over the rounds',
      ...(gpus === 1 ? ['parallel transmission over several links, for want of a second GPU'] : []),
    ],
  };
}
