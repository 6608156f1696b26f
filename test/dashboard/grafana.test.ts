/** The Grafana dashboard asks only for what a host really emits. */
import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { startReluHost } from '../support/relu-host.ts';

interface GrafanaDashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
    readonly targets: readonly { readonly expr: string }[];
  }[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] };
}

const dashboard = JSON.parse(await readFile('deploy/grafana/turntable.json', 'utf8')) as GrafanaDashboard;
const words = new Set([
  'sum',
  'by',
  'rate',
  'histogram_quantile',
  'bottomk',
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

describe('deploy/grafana/turntable.json', () => {
  it('queries series that a host emits, by labels that they have', async () => {
    await using host = await startReluHost(['relu']);
    const post = async (path: string, body?: string): Promise<void> => {
      await (
        await fetch(`${host.url}${path}`, { method: 'POST', ...(body === undefined ? {} : { body }) })
      ).arrayBuffer();
    };
    // One of each: a cold start, a warm answer, a failure, and an instance that is given up.
    await post('/function/relu', '{"input":[[1,2,3,4]]}');
    await post('/function/relu', '{"input":[[1,2,3,4]]}');
    await post('/function/relu', 'nonsense');
    await post('/v2/repository/models/relu/unload');
    const text = await (await fetch(`${host.url}/metrics`)).text();
    const emitted = new Map<string, Set<string>>();
    for (const [, name, labels] of text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})? /gm)) {
      const known = emitted.get(name!) ?? new Set();
      for (const [, label] of (labels ?? '').matchAll(/(\w+)="/g)) known.add(label!);
      emitted.set(name!, known);
    }

    const queries = [
      ...dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
      'label_values(turntable_goodput_total, function)',
    ];
    const missing = queries.flatMap((expr) =>
      asked(expr).flatMap(({ name, labels }) => {
        const has = emitted.get(name);
        if (has === undefined) return [`${name}, in ${expr}`];
        return labels.filter((label) => !has.has(label)).map((label) => `label ${label} of ${name}, in ${expr}`);
      }),
    );

    expect(queries.flatMap(asked).length).toBeGreaterThan(25);
    expect(missing).toEqual([]);
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
