/** The Grafana dashboard asks only for what a host really emits. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { FunctionsAnswer } from '../../src/host/dashboard/index.ts';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { buildEmulatedDriver } from '../emulated-driver/build.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { startReluHost } from '../support/relu-host.ts';

interface Panel {
  readonly title: string;
  /** Begins with `Needs a GPU.` where only a host with GPUs has its series. */
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets: readonly { readonly expr: string }[];
}

interface GrafanaDashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] };
}

const dashboard = JSON.parse(await readFile('deploy/grafana/turntable.json', 'utf8')) as GrafanaDashboard;
const words = new Set([
  'sum',
  'by',
  'rate',
  'histogram_quantile',
  'bottomk',
  'topk',
  'label_values',
  'function',
  'outcome',
  'plan',
  'cause',
  'code',
  'le',
  'model',
]);

/** Names of series and, for each, the labels that the expression asks of it. */
function asked(expr: string): { name: string; labels: string[] }[] {
  return [...expr.matchAll(/([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?/g)].flatMap(([, name, selectors]) => {
    if (name === undefined || words.has(name) || name.startsWith('__') || !name.includes('_')) return [];
    return [{ name, labels: [...(selectors ?? '').matchAll(/(\w+)\s*[=!]~?/g)].map(([, label]) => label!) }];
  });
}

type Emitted = ReadonlyMap<string, ReadonlySet<string>>;

/** The series of a scrape with the labels that they have. */
async function emittedBy(url: string): Promise<Emitted> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const emitted = new Map<string, Set<string>>();
  for (const [, name, labels] of text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})? /gm)) {
    const known = emitted.get(name!) ?? new Set();
    for (const [, label] of (labels ?? '').matchAll(/(\w+)="/g)) known.add(label!);
    emitted.set(name!, known);
  }
  return emitted;
}

function missingFrom(emitted: Emitted, queries: readonly string[]): string[] {
  return queries.flatMap((expr) =>
    asked(expr).flatMap(({ name, labels }) => {
      const has = emitted.get(name);
      if (has === undefined) return [`${name}, in ${expr}`];
      return labels.filter((label) => !has.has(label)).map((label) => `label ${label} of ${name}, in ${expr}`);
    }),
  );
}

const needsGpu = ({ description = '' }: Panel): boolean => description.startsWith('Needs a GPU. ');
const queriesOf = (panels: readonly Panel[]): string[] =>
  panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));

async function post(url: string, path: string, body?: string): Promise<void> {
  await (await fetch(`${url}${path}`, { method: 'POST', ...(body === undefined ? {} : { body }) })).arrayBuffer();
}

describe('deploy/grafana/turntable.json', () => {
  it('queries series that a host emits, by labels that they have', async () => {
    await using host = await startReluHost(['relu']);
    // One of each: a cold start, a warm answer, a failure, and an instance that is given up.
    await post(host.url, '/function/relu', '{"input":[[1,2,3,4]]}');
    await post(host.url, '/function/relu', '{"input":[[1,2,3,4]]}');
    await post(host.url, '/function/relu', 'nonsense');
    await post(host.url, '/v2/repository/models/relu/unload');
    const queries = [
      ...queriesOf(dashboard.panels.filter((panel) => !needsGpu(panel))),
      'label_values(turntable_goodput_total, function)',
    ];
    expect(queries.flatMap(asked).length).toBeGreaterThan(25);
    expect(missingFrom(await emittedBy(host.url), queries)).toEqual([]);
  });

  it.skipIf(emulatorMissing)('queries series of GPUs that a host with some emits', async () => {
    const driver = await buildEmulatedDriver();
    const changed = { ...driver!.environment, TURNTABLE_EMULATOR: '{"devices":[{"memoryBytes":67108864}]}' };
    const before = new Map(Object.keys(changed).map((name) => [name, process.env[name]]));
    Object.assign(process.env, changed);
    try {
      await using host = await startReluHost([], {
        flags: {
          'gpu.mode': 'pipeswitch',
          'gpu.memory': '8MiB',
          'gpu.hostMemory': '16MiB',
          'gpu.profileIterations': '1',
          'cpu.profiling': 'off',
        },
        prepare: async (functions) => {
          const place = join(functions, 'lstm');
          await mkdir(place, { recursive: true });
          const settings = { layers: 1, input: 4, hidden: 128, sequence: 2, batch: 1 };
          await writeModel(buildArchitecture('lstm', settings, 1).model, join(place, 'model.onnx'));
          await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '60s' }));
        },
      });
      await host.gpus!.settled();
      const input = { name: 'input', datatype: 'FP32', shape: [1, 2, 4], data: [1, 2, 3, 4, 5, 6, 7, 8] };
      const body = JSON.stringify({ inputs: [input] });
      // A cold start and an eviction.
      await post(host.url, '/v2/models/lstm/infer', body);
      await post(host.url, '/v2/models/lstm/infer', body);
      await post(host.url, '/v2/repository/models/lstm/unload');
      const queries = queriesOf(dashboard.panels.filter(needsGpu));
      expect(queries.flatMap(asked).length).toBeGreaterThan(10);
      expect(missingFrom(await emittedBy(host.url), queries)).toEqual([]);
      const { functions } = (await (await fetch(`${host.url}/api/functions`)).json()) as FunctionsAnswer;
      expect(functions[0]).toMatchObject({ name: 'lstm', coldStarts: 1, hits: 1, evictions: { 'gpu unload': 1 } });
    } finally {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    }
  });

  it('lays its panels out without overlap, each with a title of its own', () => {
    const titles = dashboard.panels.map(({ title }) => title);
    expect(new Set(titles).size).toBe(titles.length);
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
  });
});
