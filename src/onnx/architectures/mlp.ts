/** A multi-layer perceptron. */
import { ElementType } from '../types.ts';
import { defineArchitecture } from './architecture.ts';
import { dimension } from './seeded-graph.ts';

export const mlp = defineArchitecture({
  name: 'mlp',
  description: 'a multi-layer perceptron with rectifiers between its layers',
  settings: {
    layers: { type: 'integer', default: 8, min: 1, max: 10_000, meaning: 'layers with weights' },
    input: { type: 'integer', default: 1024, min: 1, meaning: 'input features' },
    hidden: { type: 'integer', default: 1024, min: 1, meaning: 'width of the layers between' },
    output: { type: 'integer', default: 1024, min: 1, meaning: 'output features' },
    batch: { type: 'integer', default: 0, min: 0, meaning: 'a fixed batch size; 0 leaves it open' },
  },
  graph(graph, { layers, input, hidden, output, batch }) {
    const rows = dimension(batch, 'batch');
    let x = graph.input('input', ElementType.FLOAT, [rows, input]);
    for (let layer = 0; layer < layers; layer++) {
      const last = layer === layers - 1;
      x = graph.gemm(`layers.${layer}`, x, layer === 0 ? input : hidden, last ? output : hidden, last ? 1 : 2);
      if (!last) x = graph.node('Relu', [x]);
    }
    graph.output(x, ElementType.FLOAT, [rows, output], 'output');
  },
});
