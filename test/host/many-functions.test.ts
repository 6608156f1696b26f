/** What everybody tries first: a dozen small functions on a machine without a GPU, with nothing configured. */
import { expect, test } from 'vitest';
import { instancePids, Servers } from '../../bench/servers.ts';
import { readCores } from '../../src/hardware/index.ts';
import { ElementType, GraphBuilder } from '../../src/onnx/index.ts';

const names = Array.from({ length: 12 }, (_, i) => `small-${i}`);

function relu(): GraphBuilder {
  const graph = new GraphBuilder('relu');
  const x = graph.input('x', ElementType.FLOAT, [1, 4]);
  graph.output(graph.node('Relu', [x]), ElementType.FLOAT, [1, 4], 'y');
  return graph;
}

test.skipIf(process.platform !== 'linux')(
  'twelve small functions are loaded once each, and share a few processes',
  async () => {
    await using servers = await Servers.create();
    for (const name of names) await servers.addFunction(name, relu(), { slo: '300ms' });
    const { url, process: host } = await servers.startHost();
    const call = async (name: string, value: number): Promise<number | undefined> => {
      const body = { inputs: [{ name: 'x', shape: [1, 4], datatype: 'FP32', data: [value, 0, 0, 0] }] };
      const response = await fetch(`${url}/v2/models/${name}/infer`, { method: 'POST', body: JSON.stringify(body) });
      const { outputs } = (await response.json()) as { outputs: { data: number[] }[] };
      return outputs[0]?.data[0];
    };
    for (let round = 0; round < 5; round++) {
      const answers = await Promise.all(names.map((name, i) => call(name, 100 * round + i)));
      expect(answers).toEqual(names.map((_, i) => 100 * round + i));
    }
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const coldStarts = [...metrics.matchAll(/^turntable_cold_starts_total\{[^}]*\} (\d+)/gm)].map(([, count]) =>
      Number(count),
    );
    expect(coldStarts.reduce((sum, count) => sum + count, 0)).toBe(names.length);
    // As many as cores, twice that if one was delayed; and two blank ones, for functions that get their own process.
    expect((await instancePids(host)).length).toBeLessThanOrEqual(2 * readCores().usable + 2);
  },
);
