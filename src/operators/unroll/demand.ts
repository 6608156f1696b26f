/** The treatment of each node, and which values are then needed in chunks or whole. */
import { type Graph, type GraphNode, capturedBy } from '../../onnx/index.ts';
import type { Commuting } from '../chunks/rules.ts';
import type { RecurrentNode } from './recurrent-node.ts';
import type { Selection } from './select.ts';
import { sameTime, type TimeAxis } from '../chunks/time-axis.ts';

export type Treatment =
  | { readonly kind: 'cells'; readonly recurrent: RecurrentNode }
  | { readonly kind: 'commutes'; readonly how: Commuting }
  | { readonly kind: 'selects'; readonly selection: Selection };

/** Which values are available in chunks, and from which nodes. */
export interface Analysis {
  readonly treatments: ReadonlyMap<GraphNode, Treatment>;
  /** The time axis of values that can be in chunks. */
  readonly times: ReadonlyMap<string, TimeAxis>;
}

/** Values needed in chunks, and values needed whole; a value may be both. */
export type Demand = ReturnType<typeof demandOf>;

/**
 * Values are needed in chunks by cells, by nodes that make chunks for a cell, and by nodes that take a few steps. All
 * other values are better whole: one operator on all of it instead of one for each chunk.
 */
export function demandOf(graph: Graph, { treatments, times }: Analysis) {
  const inChunks = new Set<string>();
  const whole = new Set(graph.outputs);
  const selected = new Set<string>();
  for (const node of graph.nodes.toReversed()) {
    // A node that takes a few steps uses the whole value if that is made anyway. All users have been visited by now.
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

/** How a node cuts its inputs, by input; undefined if it takes them whole. */
function cutInputs(
  node: GraphNode,
  treatment: Treatment | undefined,
  inChunks: ReadonlySet<string>,
): readonly (TimeAxis | undefined)[] | undefined {
  if (treatment?.kind === 'cells') return [treatment.recurrent.time];
  const makesChunks = treatment?.kind === 'commutes' && node.outputs.some((output) => inChunks.has(output));
  return makesChunks ? treatment.how.inputs : undefined;
}
