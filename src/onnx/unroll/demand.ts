/** What is done with each node, and who then takes which value how. */
import type { Graph } from '../graph.ts';
import type { GraphNode } from '../graph-node.ts';
import { capturedBy } from '../scope.ts';
import type { Commuting } from './commute.ts';
import type { RecurrentNode } from './recurrent-node.ts';
import type { Selection } from './select.ts';
import { sameTime, type TimeAxis } from './time-axis.ts';

export type Treatment =
  | { readonly kind: 'cells'; readonly recurrent: RecurrentNode }
  | { readonly kind: 'commutes'; readonly how: Commuting }
  | { readonly kind: 'selects'; readonly selection: Selection };

/** What can be had in chunks, and from which nodes. */
export interface Analysis {
  readonly treatments: ReadonlyMap<GraphNode, Treatment>;
  /** Where time lies in the values that can be. */
  readonly times: ReadonlyMap<string, TimeAxis>;
}

/** Values that somebody takes in chunks, and values that somebody takes as they are; a value may be both. */
export interface Demand {
  readonly inChunks: ReadonlySet<string>;
  readonly whole: ReadonlySet<string>;
}

/**
 * Whoever takes chunks is a cell, or a node that makes chunks for one, or one that takes a few steps. A value that none
 * of them is behind is better whole: one operator on all of it instead of one on each chunk.
 */
export function demandOf(graph: Graph, { treatments, times }: Analysis): Demand {
  const inChunks = new Set<string>();
  const whole = new Set(graph.outputs);
  const selected = new Set<string>();
  for (const node of graph.nodes.toReversed()) {
    // Whoever takes a few steps takes them from the whole where that is made anyway. All takers have been seen by now.
    for (const value of node.outputs) if (selected.has(value) && !whole.has(value)) inChunks.add(value);
    const treatment = treatments.get(node);
    const cut = cutInputs(node, treatment, inChunks);
    for (const [place, value] of node.proto.input.entries()) {
      if (place === 0 && treatment?.kind === 'selects') selected.add(value);
      else if (cut?.[place] !== undefined && sameTime(cut[place], times.get(value))) inChunks.add(value);
      else whole.add(value);
    }
    for (const value of capturedBy(node.proto)) whole.add(value);
  }
  return { inChunks, whole };
}

/** How a node takes its inputs cut, by place; undefined when it takes them whole. */
function cutInputs(
  node: GraphNode,
  treatment: Treatment | undefined,
  inChunks: ReadonlySet<string>,
): readonly (TimeAxis | undefined)[] | undefined {
  if (treatment?.kind === 'cells') return [treatment.recurrent.time];
  const makesChunks = treatment?.kind === 'commutes' && node.outputs.some((output) => inChunks.has(output));
  return makesChunks ? treatment.how.inputs : undefined;
}
