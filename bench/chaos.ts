/**
 * Two hosts, workers and Redis under a load with every answer checked, while everything that can be killed, stopped,
 * filled or cut is, in an order that the seed repeats. A second scene checks that a host accumulates nothing over many
 * publications and loads. A third one has hosts in control groups that are small for their functions.
 */
import type { Benchmark, BenchmarkOptions, BenchmarkResult } from './benchmark.ts';
import { reportFaults, runFaults, type FaultsPiece } from './chaos/faults.ts';
import { reportMemory, runMemory, type MemoryPiece } from './chaos/memory.ts';
import { reportSteady, runSteady, type SteadyPiece } from './chaos/steady.ts';

const scenes = ['faults', 'steady', 'memory'] as const;

type Piece = FaultsPiece | SteadyPiece | MemoryPiece;

export const benchmark: Benchmark = {
  name: 'chaos',
  description:
    'is a call lost, doubled, hung or wrong while processes, Redis, disk and clock fail; does a host gather anything',
  mustMeetAims: true,
  rowNames: () => scenes,
  run,
  sum: (pieces) => report(pieces as readonly Piece[]),
};

const runners = { faults: runFaults, steady: runSteady, memory: runMemory } as const;

async function run(options: BenchmarkOptions): Promise<BenchmarkResult> {
  const pieces: Piece[] = [];
  for (const scene of scenes) {
    if (options.rows !== undefined && !options.rows.includes(scene)) continue;
    pieces.push(await runners[scene](options));
  }
  return report(pieces);
}

function report(pieces: readonly Piece[]): BenchmarkResult {
  const faults = pieces.filter((piece) => piece.scene === 'faults');
  const steady = pieces.filter((piece) => piece.scene === 'steady');
  const memory = pieces.filter((piece) => piece.scene === 'memory');
  const parts = [
    ...(faults.length === 0 ? [] : [reportFaults(faults)]),
    ...(steady.length === 0 ? [] : [reportSteady(steady)]),
    ...(memory.length === 0 ? [] : [reportMemory(memory)]),
  ];
  return {
    settings: Object.assign({}, ...parts.map(({ settings }) => settings)) as BenchmarkResult['settings'],
    tables: parts.flatMap(({ tables }) => tables),
    figures: Object.assign({}, ...parts.map(({ figures }) => figures)) as BenchmarkResult['figures'],
    aims: parts.flatMap(({ aims }) => aims ?? []),
    limits: parts.flatMap(({ limits }) => limits),
    pieces,
  };
}
