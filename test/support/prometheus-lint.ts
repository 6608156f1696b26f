/**
 * The findings of `promtool check metrics` about an exposition, by the same rules
 * (https://prometheus.io/docs/practices/naming): names, units, suffixes and help. If promtool is on the PATH, it must
 * find the same.
 */
import { spawnSync } from 'node:child_process';

type Kind = 'counter' | 'gauge' | 'histogram' | 'summary' | 'untyped';

/** Units that have a base unit, and those that should be written out. */
const baseUnitOf: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ['seconds', 'bytes', 'meters', 'metres', 'grams', 'joules', 'volts', 'amperes', 'moles', 'kelvin'].flatMap((base) =>
      ['nano', 'micro', 'milli', 'kilo', 'mega', 'giga', 'tera', 'peta', 'kibi', 'mebi', 'gibi', 'tebi'].map(
        (prefix) => [prefix + base, base],
      ),
    ),
  ),
  minutes: 'seconds',
  hours: 'seconds',
  days: 'seconds',
  weeks: 'seconds',
  bits: 'bytes',
  fahrenheit: 'celsius',
};
const abbreviations = new Set(['s', 'ms', 'us', 'ns', 'sec', 'b', 'kb', 'mb', 'gb', 'tb', 'pb', 'm', 'h', 'd']);
const kinds = new Set(['counter', 'gauge', 'histogram', 'summary']);

/** `name problem` for each, sorted. */
export function promlint(text: string): string[] {
  const types = new Map<string, Kind>();
  const helped = new Set<string>();
  const labels = new Map<string, Set<string>>();
  for (const line of text.split('\n')) {
    const [, what, named = '', rest = ''] = /^# (HELP|TYPE) (\S+) ?(.*)$/.exec(line) ?? [];
    if (what === 'TYPE') types.set(named, rest as Kind);
    if (what === 'HELP' && rest.trim() !== '') helped.add(named);
    const [, series, inner = ''] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? /.exec(line) ?? [];
    if (series === undefined) continue;
    const family = familyOf(series, types);
    const known = labels.get(family) ?? new Set();
    for (const [, label = ''] of inner.matchAll(/(?:^|,)(\w+)="/g)) known.add(label);
    labels.set(family, known);
  }
  // promtool ignores a family without a sample.
  return [...labels]
    .flatMap(([name, given]) => {
      const kind = types.get(name) ?? 'untyped';
      const problems = [...problemsOfName(name, kind), ...problemsOfLabels(given, kind)];
      if (!helped.has(name)) problems.push('no help text');
      return problems.map((problem) => `${name} ${problem}`);
    })
    .sort();
}

/** The family of a histogram's or summary's line has no suffix. */
function familyOf(series: string, types: ReadonlyMap<string, Kind>): string {
  const bare = series.replace(/_(bucket|sum|count)$/, '');
  const kind = types.get(bare);
  return kind === 'histogram' || kind === 'summary' ? bare : series;
}

function problemsOfName(name: string, kind: Kind): string[] {
  const words = name.split('_');
  const isDistribution = kind === 'histogram' || kind === 'summary';
  const problems: string[] = [];
  if (kind === 'counter' && !name.endsWith('_total')) problems.push('counter metrics should have "_total" suffix');
  if (kind !== 'counter' && kind !== 'untyped' && name.endsWith('_total')) {
    problems.push('non-counter metrics should not have "_total" suffix');
  }
  if (kind !== 'histogram' && name.endsWith('_bucket')) {
    problems.push('non-histogram metrics should not have "_bucket" suffix');
  }
  for (const suffix of ['_count', '_sum']) {
    if (!isDistribution && name.endsWith(suffix)) {
      problems.push(`non-histogram and non-summary metrics should not have "${suffix}" suffix`);
    }
  }
  const unit = words.find((word) => word in baseUnitOf);
  if (unit !== undefined) problems.push(`use base unit "${baseUnitOf[unit]}" instead of "${unit}"`);
  const type = words.find((word) => kinds.has(word));
  if (type !== undefined) problems.push(`metric name should not include type '${type}'`);
  if (name.includes(':')) problems.push("metric names should not contain ':'");
  if (/[a-z][A-Z]/.test(name)) problems.push("metric names should be written in 'snake_case' not 'camelCase'");
  if (words.some((word) => abbreviations.has(word))) problems.push('metric names should not contain abbreviated units');
  return problems;
}

function problemsOfLabels(given: ReadonlySet<string>, kind: Kind): string[] {
  const problems: string[] = [];
  if (kind !== 'histogram' && given.has('le')) problems.push('non-histogram metrics should not have "le" label');
  if (kind !== 'summary' && given.has('quantile'))
    problems.push('non-summary metrics should not have "quantile" label');
  if ([...given].some((label) => /[a-z][A-Z]/.test(label))) {
    problems.push("label names should be written in 'snake_case' not 'camelCase'");
  }
  return problems;
}

/** Families with names from Triton, ModelMesh, OpenFaaS or prom-client, which existing queries use. */
export const inherited = /^(nv|modelmesh|gateway|nodejs|process)_/;

/** promtool's own findings, in the same form; undefined if it is not installed. */
export function promtool(text: string): string[] | undefined {
  const { error, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], { input: text, encoding: 'utf8' });
  if (error !== undefined) return undefined;
  return `${stdout}${stderr}`.split('\n').filter(Boolean).sort();
}
