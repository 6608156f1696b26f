import { expect, test } from 'vitest';
import { ElementType, GraphBuilder } from '../onnx/index.ts';
import { typedGraph } from './typed-graph.ts';

test('element types are inferred through operators if the file has none, and shapes are not', () => {
  const g = new GraphBuilder('g');
  g.input('x', ElementType.FLOAT, ['batch', 4]);
  const [top, places] = g.node('TopK', ['x', g.constant({ ints: [4] })], {}, { outputs: ['top', 'places'] });
  const [count] = g.node('Shape', [top], {}, { outputs: ['count'] });
  const [half] = g.node('Cast', [count], { to: ElementType.FLOAT16 }, { outputs: ['half'] });
  g.node('Equal', [half, half], {}, { outputs: ['same'] });
  g.output(g.node('GatherElements', [top, places], { axis: 1 }), ElementType.FLOAT, ['batch', 4], 'y');
  const graph = typedGraph(g.build());
  expect(['top', 'places', 'count', 'half', 'same', 'y'].map((name) => graph.type(name)?.elementType)).toEqual([
    ElementType.FLOAT,
    ElementType.INT64,
    ElementType.INT64,
    ElementType.FLOAT16,
    ElementType.BOOL,
    ElementType.FLOAT,
  ]);
  expect(graph.shape('x')).toEqual(['batch', 4]);
  expect(graph.shape('top')).toBeUndefined();
});
