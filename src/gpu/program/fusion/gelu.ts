import { geluAt } from '../../../operators/index.ts';
import type { WorkGraph } from '../work-graph.ts';

/** Replaces trees that compute GELU by Gelu nodes, with the attribute `approximate` for the form. */
export function fuseGelu(graph: WorkGraph): void {
  for (const root of graph.nodes) {
    const gelu = graph.has(root) ? geluAt(graph, root) : undefined;
    if (gelu === undefined) continue;
    const { nodes, leaf, approximate } = gelu;
    const output = root.outputs[0]!;
    if (graph.values.get(output)?.datatype !== graph.values.get(leaf)?.datatype) continue;
    if (graph.shape(output)?.join() !== graph.shape(leaf)?.join()) continue;
    graph.replace(nodes, { type: 'Gelu', inputs: [leaf], outputs: [output], attributes: { approximate } });
  }
}
