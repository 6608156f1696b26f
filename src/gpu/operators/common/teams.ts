/** How many threads share one row, and how many rows one block. */
import { accumulatorOf, elementOf } from './element.ts';
import type { DataType } from '../../../tensor/index.ts';
import type { Emitter, KernelArgument } from '../types.ts';
import { kernelFrom, type Definitions } from './kernel-file.ts';

export interface Team {
  /** Threads to a row: 1, 32 (a warp), or a whole block. */
  readonly threads: number;
  readonly block: number;
}

const blockOfSmallTeams = 128;

/** Rows up to which blocks of one warp's rows would leave most of a large GPU's multiprocessors idle. */
const fewRows = 2048;

/** A team for rows that are contiguous: its threads read neighbouring elements. */
export function teamForRows(rows: number, columns: number): Team {
  if (columns <= 4) return { threads: 1, block: blockOfSmallTeams };
  if (columns <= 256 || (columns <= 1024 && rows >= fewRows)) return { threads: 32, block: blockOfSmallTeams };
  const threads = columns <= 4096 ? 128 : columns <= 16_384 ? 512 : 1024;
  return { threads, block: threads };
}

/** A team of one: where neighbouring rows lie beside each other, and each thread walks down its own. */
export const alone: Team = { threads: 1, block: blockOfSmallTeams };

const blocksFor = (rows: number, team: Team): number => Math.ceil(rows / (team.block / team.threads));

/** Most values of a row that one thread keeps in registers between its passes over them. */
const heldMax = 32;

/** Values of a row for each thread to keep; 0 where there are too many, and the row is read again. */
export function heldPerThread(columns: number, team: Team): number {
  const each = Math.ceil(columns / team.threads);
  return each <= heldMax ? each : 0;
}

/** Types in memory and in between, and the conversions. */
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
  /** Besides those of the team. */
  readonly definitions: Definitions;
  readonly arguments: readonly KernelArgument[];
}

/** Adds and launches a kernel file whose teams take a row each. */
export function launchTeams(emitter: Emitter, hint: string, file: string, launch: TeamLaunch): void {
  const { team, rows, definitions } = launch;
  emitter.launch({
    kernel: emitter.kernel(hint, teamKernel(file, { ...definitions, TEAM: team.threads, BLOCK: team.block })),
    grid: [blocksFor(rows, team)],
    block: [team.block],
    arguments: launch.arguments,
  });
}

/** C's functions have other names for float than for double. */
export const mathOf = (accumulator: string): ((name: string) => string) =>
  accumulator === 'double' ? (name) => name : (name) => `${name}f`;
