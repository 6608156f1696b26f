/** Compiles a prepared graph to a program, or reports all obstacles. */
import type { Operator } from '../operators/types.ts';
import { assemble } from './assemble.ts';
import { Emission } from './emission.ts';
import { unsupported } from './error.ts';
import { emitNodes } from './groups.ts';
import { fuse } from './fusion/index.ts';
import type { PreparedGraph } from './prepared.ts';
import type { Recorder } from './recorder.ts';
import type { Program } from './types.ts';
import type { ProgramSettings } from '../types.ts';
import { WorkGraph } from './work-graph.ts';
import { writeOut } from './written.ts';

export interface CompileOptions {
  /** False: each node is emitted on its own. Default true. */
  readonly fusion?: boolean;
  /** The program's key. */
  readonly key: string;
}

export const defaultSettings: ProgramSettings = { precision: 'exact' };

/** The launches of a graph, or obstacles. `recorder`: where they are recorded, with those of other graphs. */
export function emitAll(
  prepared: PreparedGraph,
  operators: readonly Operator[],
  settings: ProgramSettings,
  { fusion, recorder }: { readonly fusion: boolean; readonly recorder?: Recorder },
): Emission {
  const byType = new Map(operators.map((operator) => [operator.type, operator]));
  const graph = new WorkGraph(prepared);
  const blocked = new Set(prepared.obstacles.map(({ node }) => node));
  const unwritten = writeOut(graph, byType, blocked);
  if (fusion) fuse(graph, byType, settings);
  const emission = new Emission(prepared, graph, settings, recorder);
  emission.obstacles.push(...prepared.obstacles, ...unwritten);
  emitNodes(emission, byType, blocked, fusion);
  emission.placeOutputs();
  return emission;
}

/** @throws ProgramError 'unsupported' with all obstacles */
export function compileProgram(
  prepared: PreparedGraph,
  operators: readonly Operator[],
  settings: ProgramSettings,
  { fusion = true, key }: CompileOptions,
): Program {
  const emission = emitAll(prepared, operators, settings, { fusion });
  if (emission.obstacles.length > 0) throw unsupported(emission.obstacles);
  return assemble(prepared, emission, key);
}
