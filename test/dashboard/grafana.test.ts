/**
 * Dashboards against a live host: ours, and those that users bring from Triton, ModelMesh and OpenFaaS. Each query must
 * have data with the labels that it uses. Queries without data are listed in docs/coming-from.md, and nothing else is.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { FunctionsAnswer } from '../../src/host/dashboard/index.ts';
import { dependencyNames } from '../../src/host/dependencies.ts';
import { startBusyHost, type BusyHost } from '../support/busy-host.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { call, patient, publish } from '../support/fleet-calls.ts';
import { FleetHosts } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';
import { inherited, promlint } from '../support/prometheus-lint.ts';

interface Panel {
  readonly title: string;
  /** Begins with `Needs a GPU.` or `Needs a fleet.` if only such a host has its series. */
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
  'increase',
  'and',
  'function',
  'outcome',
  'plan',
  'cause',
  'code',
  'le',
  'model',
]);

/** Names of series in the expression, each with its labels. */
function asked(expr: string): { name: string; labels: string[] }[] {
  return [...expr.matchAll(/([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?/g)].flatMap(([, name, selectors]) => {
    if (name === undefined || words.has(name) || name.startsWith('__') || !name.includes('_')) return [];
    return [{ name, labels: [...(selectors ?? '').matchAll(/(\w+)\s*[=!]~?/g)].map(([, label]) => label!) }];
  });
}

type Emitted = ReadonlyMap<string, ReadonlySet<string>>;

/** Names of all metrics of a scrape, those without any series yet included. */
async function declaredBy(url: string): Promise<ReadonlySet<string>> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return new Set(Array.from(text.matchAll(/^# TYPE (\S+) /gm), ([, name]) => name!));
}

/** The series of a scrape with their labels; names follow Prometheus' rules, except inherited ones. */
async function emittedBy(url: string): Promise<Emitted> {
  const text = await (await fetch(`${url}/metrics`)).text();
  expect(promlint(text).filter((problem) => !inherited.test(problem))).toEqual([]);
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
const needsFleet = ({ description = '' }: Panel): boolean => description.startsWith('Needs a fleet. ');
const queriesOf = (panels: readonly Panel[]): string[] =>
  panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));

let host: BusyHost | undefined;
let emitted: Emitted;
beforeAll(async () => {
  host = await startBusyHost();
  emitted = await emittedBy(host.url);
});
afterAll(async () => {
  await host?.[Symbol.asyncDispose]();
});

describe('deploy/grafana/turntable.json', () => {
  it('queries series that a host emits, by their labels', () => {
    const queries = [
      ...queriesOf(dashboard.panels.filter((panel) => !needsGpu(panel) && !needsFleet(panel))),
      'label_values(turntable_goodput_total, function)',
    ];
    expect(queries.flatMap(asked).length).toBeGreaterThan(25);
    expect(missingFrom(emitted, queries)).toEqual([]);
  });

  it.skipIf(emulatorMissing)('queries series of GPUs that a host with GPUs emits', async () => {
    const queries = queriesOf(dashboard.panels.filter(needsGpu));
    expect(queries.flatMap(asked).length).toBeGreaterThan(10);
    expect(missingFrom(emitted, queries)).toEqual([]);
    const { functions } = (await (await fetch(`${host!.url}/api/functions`)).json()) as FunctionsAnswer;
    const lstm = functions.find(({ name }) => name === 'lstm');
    expect(lstm).toMatchObject({ coldStarts: 1, hits: 1, evictions: { 'gpu unload': 1 } });
  });

  it.skipIf(redisMissing !== undefined)('queries series of fleets that a host of a fleet emits', async () => {
    await using fleet = await FleetHosts.start(2);
    const [one, other] = fleet.hosts as [ReluHost, ReluHost];
    // Enough that one of them has the other host as its home.
    const names = Array.from({ length: 14 }, (_, index) => `shared-${index}`);
    for (const name of names) expect((await publish(one, name, 2)).status).toBe(201);
    await vi.waitFor(async () => {
      for (const name of names) await call(one, name);
      const queries = queriesOf(dashboard.panels.filter(needsFleet));
      expect(queries.flatMap(asked).length).toBeGreaterThan(6);
      expect(missingFrom(await emittedBy(one.url), queries)).toEqual([]);
    }, patient);
    // Sums over hosts are grouped by the address that Prometheus adds to each target.
    const own = dashboard.panels.filter(needsFleet).flatMap(({ targets }) => targets.map(({ expr }) => expr));
    for (const expr of own) expect(expr).toMatch(/^(sum|min|max) by \((instance|state|host)\b/);
    expect(await call(other, names[0]!)).toEqual([2, 4, 6, 8]);
  });

  it('deploy/grafana/turntable.json has one panel for each dependency of a host, first of all', () => {
    const first = dashboard.panels
      .slice(0, dependencyNames.length)
      .flatMap(({ targets }) => targets.map(({ expr }) => expr));
    expect(first.map((expr) => /dependency="(\w+)"/.exec(expr)?.[1])).toEqual([...dependencyNames]);
  });

  it('lays its panels out without overlap, each with a unique title', () => {
    const titles = dashboard.panels.map(({ title }) => title);
    expect(new Set(titles).size).toBe(titles.length);
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
  });
});

describe('deploy/prometheus/turntable.rules.yaml', async () => {
  const { parse } = createRequire(import.meta.url)('yaml') as { parse: (text: string) => unknown };
  const rules = parse(await readFile('deploy/prometheus/turntable.rules.yaml', 'utf8')) as {
    readonly groups: readonly { readonly name: string; readonly rules: readonly AlertRule[] }[];
  };
  const alerts = rules.groups.flatMap((group) => group.rules);

  it('deploy/prometheus/turntable.rules.yaml asks metrics that a host has, by labels that they have', async () => {
    const declared = await declaredBy(host!.url);
    const names = alerts.flatMap(({ expr }) => asked(expr)).map(({ name }) => name);
    expect(names.length).toBeGreaterThan(10);
    expect(names.filter((name) => !declared.has(name))).toEqual([]);
    // Series without any sample yet have no labels to compare.
    const queries = alerts.map(({ expr }) => expr);
    expect(missingFrom(emitted, queries).filter((each) => each.startsWith('label '))).toEqual([]);
  });

  it('deploy/prometheus/turntable.rules.yaml has an alert for each dependency of a host, and each alert says what it means', () => {
    const watched = alerts.flatMap(({ expr }) => /dependency="(\w+)"/.exec(expr)?.[1] ?? []);
    expect(watched).toEqual([...dependencyNames]);
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length);
    for (const { annotations, labels } of alerts) {
      expect(annotations.summary).not.toBe('');
      expect(annotations.description).toMatch(/\.$/);
      expect(['warning', 'critical']).toContain(labels.severity);
    }
  });
});

interface AlertRule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string };
}

interface Query {
  readonly panel: string;
  /** Selectors of PromQL, without those in every query of the dashboard: namespace and pod. */
  readonly selects: readonly string[];
  /** Labels that it groups by. */
  readonly by?: readonly string[];
}
type Sample = ReadonlyMap<string, string>;

/** Labels that Kubernetes adds to every series of a pod, with ModelMesh's names for its pods. */
const target = { namespace: 'modelmesh-serving', pod: 'modelmesh-serving-triton-0', instance: 'host:8000' };
const variables = { $runtime: 'triton', $mm_container: 'mm' };

async function samplesOf(url: string): Promise<ReadonlyMap<string, readonly Sample[]>> {
  const samples = new Map<string, Sample[]>();
  const text = await (await fetch(`${url}/metrics`)).text();
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})? /gm)) {
    const given = [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label, value]) => [label!, value!] as const);
    samples.set(name, [...(samples.get(name) ?? []), new Map([...Object.entries(target), ...given])]);
  }
  return samples;
}

function selects(sample: Sample, matchers: string): boolean {
  return [...matchers.matchAll(/(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g)].every(([, label, operator, text]) => {
    const value = sample.get(label!) ?? '';
    const wanted = text!.replace(/\$\w+/g, (name) => variables[name as keyof typeof variables] ?? name);
    const isEqual = operator!.includes('~') ? new RegExp(`^(?:${wanted})$`).test(value) : value === wanted;
    return operator!.startsWith('!') ? !isEqual : isEqual;
  });
}

/** The first column of the table below this heading: selectors, or prefixes of names that end in `*`. */
function exceptions(page: string): string[] {
  const [, table = ''] = /\n## Queries without data\n(.*?)(?=\n## |$)/s.exec(page) ?? [];
  return [...table.matchAll(/^\| (`.*?) \|/gm)].flatMap(([, cell]) =>
    [...cell!.matchAll(/`([^`]+)`/g)].map(([, each]) => each!),
  );
}

const isExcepted = (selector: string, list: readonly string[]): boolean =>
  list.some((each) => (each.endsWith('*') ? selector.startsWith(each.slice(0, -1)) : selector === each));

describe.skipIf(emulatorMissing)('a dashboard made for', async () => {
  const brought = JSON.parse(await readFile('test/dashboard/inherited-queries.json', 'utf8')) as Readonly<
    Record<string, { readonly of: string; readonly queries: readonly Query[] }>
  >;
  const listed = exceptions(await readFile('docs/coming-from.md', 'utf8'));

  it.each(Object.entries(brought))(
    '%s has data in each query that the docs do not list as an exception',
    async (_, { queries }) => {
      const samples = await samplesOf(host!.url);
      const empty = queries.flatMap(({ panel, selects: selectors, by = [] }) =>
        selectors
          .filter((selector) => !isExcepted(selector, listed))
          .flatMap((selector) => {
            const [, name = '', matchers = ''] = /^([\w:]+)(?:\{(.*)\})?$/.exec(selector) ?? [];
            const found = (samples.get(name) ?? []).filter((sample) => selects(sample, matchers));
            if (found.length === 0) return [`${panel}: ${selector}`];
            return by
              .filter((label) => !found.some((sample) => sample.has(label)))
              .map((label) => `${panel}: label ${label}`);
          }),
      );
      expect(empty).toEqual([]);
    },
  );

  it('has exceptions only for queries that the host cannot answer', async () => {
    const samples = await samplesOf(host!.url);
    const all = Object.values(brought).flatMap(({ queries }) => queries.flatMap(({ selects: selectors }) => selectors));
    const needless = listed.filter((each) => {
      const asking = all.filter((selector) => isExcepted(selector, [each]));
      const hasData = asking.some((selector) => {
        const [, name = '', matchers = ''] = /^([\w:]+)(?:\{(.*)\})?$/.exec(selector) ?? [];
        return (samples.get(name) ?? []).some((sample) => selects(sample, matchers));
      });
      return asking.length === 0 || hasData;
    });
    expect(needless).toEqual([]);
    expect(listed.length).toBeGreaterThan(3);
  });
});
