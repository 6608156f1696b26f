/** The models that Triton's example clients call. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';

/** Sum and difference of sixteen numbers; as strings they are decimal. */
export function simple(type: ElementType): GraphBuilder {
  const graph = new GraphBuilder('simple');
  const cast = (tensor: string, from: ElementType, to: ElementType): string =>
    from === to ? tensor : graph.node('Cast', [tensor], { to });
  const inner = type === ElementType.STRING ? ElementType.INT32 : type;
  const [a, b] = ['INPUT0', 'INPUT1'].map((name) => cast(graph.input(name, type, ['batch', 16]), type, inner)) as [
    string,
    string,
  ];
  for (const [operator, output] of [
    ['Add', 'OUTPUT0'],
    ['Sub', 'OUTPUT1'],
  ] as const) {
    graph.output(cast(graph.node(operator, [a, b]), inner, type), type, ['batch', 16], output);
  }
  return graph;
}

/** Returns the input unchanged. */
export function identity(
  name: string,
  input: string,
  output: string,
  type: ElementType,
  inner: number | string,
): GraphBuilder {
  const graph = new GraphBuilder(name);
  graph.output(graph.node('Identity', [graph.input(input, type, ['batch', inner])]), type, ['batch', inner], output);
  return graph;
}

export async function addFunction(
  functions: string,
  name: string,
  graph: GraphBuilder,
  settings: object,
): Promise<void> {
  const folder = join(functions, name);
  await mkdir(folder, { recursive: true });
  await writeModel(graph.build(), join(folder, 'model.onnx'));
  await writeFile(join(folder, 'labels.txt'), 'cat\ndog\nbird\ncow\n');
  await writeFile(join(folder, 'function.json'), JSON.stringify({ slo: '5s', ...settings }));
}
