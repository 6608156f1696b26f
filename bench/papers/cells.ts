/** The cells of the papers' tables and figures, each beside ours. */
import { tableOf, type BenchmarkTable } from '../benchmark.ts';

/**
 * - `computed`: against a printed number; counts as a hit within its aim.
 * - `shape`: only a trend is printed, or the axis has no numbers in the text; never counts as a hit.
 * - `fitted`: a preset or a constant was fitted to it, so that agreement says nothing.
 * - `only measurable`: nothing here can compute it.
 */
export type Word = 'computed' | 'shape' | 'fitted' | 'only measurable';

export interface Cell {
  readonly where: string;
  readonly what: string;
  readonly paper: string;
  readonly ours: string;
  readonly difference: string;
  readonly word: Word;
  /** Undefined if the cell has no aim. */
  readonly met: boolean | undefined;
  /** Why it is off, or cannot be computed, or what the trend is. */
  readonly why: string;
}

export interface Aim {
  /** The least and the most that the paper prints; one number for an exact figure. */
  readonly paper: number | readonly [number, number];
  readonly ours: number;
  readonly digits?: number;
  readonly unit?: string;
  /** Share of the paper's figure that ours may be off. */
  readonly within: number;
  /** Less than the paper's is no miss, as of memory that a plan needs. */
  readonly isLessBetter?: boolean;
  readonly word?: 'computed' | 'fitted';
  readonly why?: string;
}

/** A figure beside a printed number, or beside a printed range. */
export function cell(where: string, what: string, aim: Aim): Cell {
  const { paper, ours, within, digits = 2, unit = '', word = 'computed', isLessBetter = false, why = '' } = aim;
  const [least, most] = typeof paper === 'number' ? [paper, paper] : paper;
  const nearest = Math.min(Math.max(ours, least), most);
  const off = nearest === 0 ? ours : ours / nearest - 1;
  const met = isLessBetter ? off <= within : Math.abs(off) <= within;
  const text = (value: number): string => `${value.toFixed(digits)}${unit}`;
  return {
    where,
    what,
    paper: typeof paper === 'number' ? text(paper) : `${text(least)} to ${text(most)}`,
    ours: text(ours),
    difference: `${off >= 0.0005 ? '+' : ''}${(Math.abs(off) < 0.0005 ? 0 : off * 100).toFixed(1)}%`,
    word,
    met,
    why: met && !isLessBetter ? '' : why,
  };
}

/** A decision, an order: equal or not. */
export function equalCell(where: string, what: string, paper: string, ours: string, why = ''): Cell {
  const met = paper === ours;
  return {
    where,
    what,
    paper,
    ours,
    difference: met ? 'equal' : 'differs',
    word: 'computed',
    met,
    why: met ? '' : why,
  };
}

export function shape(where: string, what: string, paper: string, ours: string, why = ''): Cell {
  return { where, what, paper, ours, difference: '-', word: 'shape', met: undefined, why };
}

export function onlyMeasurable(where: string, what: string, paper: string, why: string, ours = '-'): Cell {
  return { where, what, paper, ours, difference: '-', word: 'only measurable', met: undefined, why };
}

export function cellTable(paper: string, cells: readonly Cell[]): BenchmarkTable {
  return tableOf(
    `${paper}: every table and figure`,
    cells,
    [
      ['where', ({ where }) => where],
      ['what', ({ what }) => what],
      ['>paper', ({ paper: theirs }) => theirs],
      ['>ours', ({ ours }) => ours],
      ['>difference', ({ difference }) => difference],
      ['word', ({ word }) => word],
      ['within its aim', ({ word, met }) => (met === undefined || word === 'fitted' ? '-' : met ? 'yes' : 'no')],
      ['why', ({ why }) => why],
    ],
    { kind: 'estimated', from: 'planners, the simulator and published tables; what was measured says so' },
  );
}
