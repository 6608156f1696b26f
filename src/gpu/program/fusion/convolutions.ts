/**
 * Fuses a convolution with the activation behind it: `turntable.Conv` is a Conv with the attributes activation ('none',
 * 'relu', 'clip'), clipMin and clipMax.
 */
import { attributeOf, type AttributeValue } from '../../../onnx/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import { activationOf, hasProductTypes } from './patterns.ts';

/** The attributes for a Clip; undefined if a limit is computed at run time. */
function clipLimits(graph: WorkGraph, { proto }: WorkNode): Record<string, AttributeValue> | undefined {
  const [, low = '', high = ''] = proto.input;
  const limit = (value: string, attribute: string, otherwise: number): number | undefined =>
    value === '' ? attributeOf<number>(proto, attribute, otherwise) : graph.scalar(value);
  const clipMin = limit(low, 'min', -3.4028234663852886e38);
  const clipMax = limit(high, 'max', 3.4028234663852886e38);
  if (clipMin === undefined || clipMax === undefined) return undefined;
  return { activation: 'clip', clipMin: { float: clipMin }, clipMax: { float: clipMax } };
}

export function fuseConvolutions(graph: WorkGraph): void {
  for (const node of graph.nodes) {
    if (node.type !== 'Conv' || !graph.has(node) || !hasProductTypes(graph, node.uses)) continue;
    const user = graph.onlyConsumer(node.outputs[0]!);
    if (user === undefined) continue;
    const attributes: Record<string, AttributeValue> | undefined =
      activationOf(user) === 'relu'
        ? { activation: 'relu' }
        : user.type === 'Clip' && user.proto.input[0] === node.outputs[0]
          ? clipLimits(graph, user)
          : undefined;
    if (attributes === undefined) continue;
    graph.replace([node, user], {
      type: 'turntable.Conv',
      inputs: node.proto.input,
      outputs: user.proto.output,
      attributes,
      from: node.proto,
    });
  }
}
