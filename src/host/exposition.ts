/**
 * The text that Prometheus reads, written in slices: prom-client's own writes all series of all functions in one turn
 * of the event loop, and hashes the labels of each.
 */
import type { Histogram } from './statistics.ts';
import { Slices } from './slices.ts';

export type Labels = Readonly<Record<string, string | number>>;
export type AddSample = (labels: Labels, value: number) => void;

export interface HistogramSample {
  readonly labels: Labels;
  readonly histogram: Histogram;
}

interface Family {
  readonly head: string;
  /** Each a line, or the lines of one histogram. */
  readonly lines: () => Iterable<string>;
}

export class Exposition {
  readonly #families: Family[] = [];

  /** Samples with the same labels are added up. */
  counter(name: string, help: string, read: (add: AddSample) => void): void {
    this.#add(name, help, 'counter', () => {
      const sums = new Map<string, number>();
      read((labels, value) => {
        const series = `${name}${labelText(labels)}`;
        sums.set(series, (sums.get(series) ?? 0) + value);
      });
      return linesOf(sums);
    });
  }

  /** Of samples with the same labels the last one counts. */
  gauge(name: string, help: string, read: (set: AddSample) => void): void {
    this.#add(name, help, 'gauge', () => {
      const values = new Map<string, number>();
      read((labels, value) => values.set(`${name}${labelText(labels)}`, value));
      return linesOf(values);
    });
  }

  histogram(name: string, help: string, read: () => Iterable<HistogramSample>): void {
    this.#add(name, help, 'histogram', function* lines() {
      for (const sample of read()) yield histogramText(name, sample);
    });
  }

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

function* linesOf(values: ReadonlyMap<string, number>): Iterable<string> {
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
  return `${text}${name}_bucket{${buckets}le="+Inf"} ${count}\n${name}_sum${all} ${sum}\n${name}_count${all} ${count}\n`;
}

/** In braces, or nothing for no labels. @param end instead of the closing brace, as the beginning of more labels */
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
