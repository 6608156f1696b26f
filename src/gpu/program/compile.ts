/** Compiles a prepared graph to a program, or reports all obstacles. */
import type { Operator } from '../operators/types.ts';
import { assemble } from './assemble.ts';
import { Emission } from './emission.ts';
import { unsupported } from './error.ts';
import { emitNodes } from './groups.ts';
import { fuse } from './fusion/index.ts';
import type { PreparedGraph } from './prepared.ts';
import type { Program, ProgramSettings } from './types.ts';
import { WorkGraph } from './work-graph.ts';

export interface CompileOptions {
  /** False: each node is emitted on its own. Default true. */
  readonly fusion?: boolean;
  /** The program's key. */
  readonly key: string;
}

export const defaultSettings: ProgramSettings = { precision: 'exact' };

function emitAll(
  prepared: PreparedGraph,
  operators: readonly Operator[],
  settings: ProgramSettings,
  fusion: boolean,
): Emission {
  const byType = new Map(operators.map((operator) => [operator.type, operator]));
  const graph = new WorkGraph(prepared);
  // Fusion makes products over heads inside other tensors, which only the library can do.
  if (fusion && settings.products !== 'own') fuse(graph, byType, settings);
  const emission = new Emission(prepared, graph, settings);
  emission.obstacles.push(...prepared.obstacles);
  const blocked = new Set(prepared.obstacles.map(({ node }) => node));
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
  const emission = emitAll(prepared, operators, settings, fusion);
  if (emission.obstacles.length > 0) throw unsupported(emission.obstacles);
  return assemble(prepared, emission, key);
}
