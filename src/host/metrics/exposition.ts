/**
 * The text for Prometheus, written in slices: prom-client writes all series of all functions in one turn of the event
 * loop, and hashes the labels of each.
 */
import type { Histogram } from '../records/statistics.ts';
import { Slices } from '../limits/slices.ts';

export type Labels = Readonly<Record<string, string | number>>;
export type AddSample = (labels: Labels, value: number) => void;

/** Adds a sample for each series. For a metric without labels it returns the value, undefined if there is none. */
export type Read = ((add: AddSample) => void) | (() => number | undefined);

export interface HistogramSample {
  readonly labels: Labels;
  readonly histogram: Histogram;
}

interface Family {
  readonly head: string;
  /** Each item is a line, or the lines of one histogram. */
  readonly lines: () => Iterable<string>;
}

export class Exposition {
  readonly #families: Family[] = [];

  /** Samples with the same labels are added up. */
  readonly counter = (name: string, help: string, read: Read): void =>
    this.#add(name, help, 'counter', () => linesOf(name, read, (sum, value) => sum + value));

  /** The last of several samples with the same labels counts. */
  readonly gauge = (name: string, help: string, read: Read): void =>
    this.#add(name, help, 'gauge', () => linesOf(name, read, (_, value) => value));

  readonly histogram = (name: string, help: string, read: () => Iterable<HistogramSample>): void =>
    this.#add(name, help, 'histogram', function* lines() {
      for (const sample of read()) yield histogramText(name, sample);
    });

  async text(): Promise<string> {
    const slices = new Slices();
    let text = '';
    for (const { head, lines } of this.#families) {
      text += head;
      for (const line of lines()) {
        text += line;
        if (slices.isOver) await slices.rest();
      }
    }
    return text;
  }

  #add(name: string, help: string, type: string, lines: Family['lines']): void {
    this.#families.push({ head: `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`, lines });
  }
}

function* linesOf(name: string, read: Read, join: (before: number, value: number) => number): Iterable<string> {
  const values = new Map<string, number>();
  const add: AddSample = (labels, value) => {
    const series = `${name}${labelText(labels)}`;
    values.set(series, join(values.get(series) ?? 0, value));
  };
  const single = read(add);
  if (typeof single === 'number') add({}, single);
  for (const [series, value] of values) yield `${series} ${value}\n`;
}

function histogramText(name: string, { labels, histogram: { bounds, counts, sum, count } }: HistogramSample): string {
  const buckets = labelText(labels, '');
  let below = 0;
  let text = '';
  for (const [index, bound] of bounds.entries()) {
    below += counts[index] ?? 0;
    text += `${name}_bucket{${buckets}le="${bound}"} ${below}\n`;
  }
  const all = labelText(labels);
  text += `${name}_bucket{${buckets}le="+Inf"} ${count}\n`;
  return `${text}${name}_sum${all} ${sum}\n${name}_count${all} ${count}\n`;
}

/** In braces; empty without labels. @param end instead of the closing brace, when more labels follow */
function labelText(labels: Labels, end?: ''): string {
  let text = '';
  for (const [name, value] of Object.entries(labels)) {
    text += `${name}="${typeof value === 'number' ? value : escaped(value)}",`;
  }
  if (end !== undefined) return text;
  return text === '' ? '' : `{${text.slice(0, -1)}}`;
}

function escaped(value: string): string {
  return /["\\\n]/.test(value) ? value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n') : value;
}
