/** Teams: the threads that share one row in reductions. */
import { accumulatorOf, elementOf } from '../../../operators/index.ts';
import type { DataType } from '../../../tensor/index.ts';
import type { Emitter, KernelArgument } from '../types.ts';
import { kernelFrom, type Definitions } from './kernel-file.ts';

export interface Team {
  /** Threads for a row: 1, 32 (a warp), or a whole block. */
  readonly threads: number;
  readonly block: number;
}

const blockOfSmallTeams = 128;

/** With fewer rows, one warp for each would leave most multiprocessors of a large GPU idle. */
const fewRows = 2048;

/** A team for contiguous rows. */
export function teamForRows(rows: number, columns: number): Team {
  if (columns <= 4) return { threads: 1, block: blockOfSmallTeams };
  if (columns <= 256 || (columns <= 1024 && rows >= fewRows)) return { threads: 32, block: blockOfSmallTeams };
  const threads = columns <= 4096 ? 128 : columns <= 16_384 ? 512 : 1024;
  return { threads, block: threads };
}

/** A team of one, for interleaved rows: neighbouring threads read neighbouring elements. */
export const alone: Team = { threads: 1, block: blockOfSmallTeams };

const blocksFor = (rows: number, team: Team): number => Math.ceil(rows / (team.block / team.threads));

/** Limit for the values of a row that a thread keeps in registers between passes. */
const heldMax = 32;

/** Values of a row that each thread keeps in registers; 0 if there are too many and the row is read again. */
export function heldPerThread(columns: number, team: Team): number {
  const each = Math.ceil(columns / team.threads);
  return each <= heldMax ? each : 0;
}

/** Definitions of the types in memory, the type of sums, and the conversions. */
export function typeDefinitions(input: DataType, output: DataType, accumulator = accumulatorOf(input)): Definitions {
  return {
    INPUT: elementOf(input).stored,
    OUTPUT: elementOf(output).stored,
    ACCUMULATOR: accumulator,
    'LOAD(x)': elementOf(input).load('(x)'),
    'STORE(x)': `(${elementOf(output).store(`(${elementOf(output).computed})(x)`)})`,
  };
}

/** A kernel file that reduces by teams. */
export const teamKernel = (file: string, definitions: Definitions): string =>
  kernelFrom('team', {}) + kernelFrom(file, definitions);

export interface TeamLaunch {
  readonly team: Team;
  readonly rows: number;
  /** Definitions besides TEAM and BLOCK. */
  readonly definitions: Definitions;
  readonly arguments: readonly KernelArgument[];
}

/** Adds and launches a kernel file with a team for each row. */
export function launchTeams(emitter: Emitter, hint: string, file: string, launch: TeamLaunch): void {
  const { team, rows, definitions } = launch;
  emitter.launch({
    kernel: emitter.kernel(hint, teamKernel(file, { ...definitions, TEAM: team.threads, BLOCK: team.block })),
    grid: [blocksFor(rows, team)],
    block: [team.block],
    arguments: launch.arguments,
  });
}

/** The names of C's math functions for float or double: 'sqrtf', 'sqrt'. */
export const mathOf = (accumulator: string): ((name: string) => string) =>
  accumulator === 'double' ? (name) => name : (name) => `${name}f`;
