/** The table of functions: its columns, their order, and which rows are shown. */
import type { FunctionRow } from '../../api-types.ts';

/** Null sorts last in both directions. */
const values = {
  name: (row) => row.name,
  residency: (row) => `${row.state === 'ready' ? 1 : 0}${row.residency}`,
  sloMs: (row) => row.sloMs,
  goodput: (row) => row.goodputShare,
  p99: (row) => row.totals.p99Ms,
  rate: (row) => row.requestsPerSecond,
  cold: (row) => row.coldShare,
  gpuBytes: (row) => row.gpuBytes,
  hostBytes: (row) => row.hostBytes,
  diskBytes: (row) => row.diskBytes,
  lastUse: (row) => row.lastUseMs,
} as const satisfies Readonly<Record<string, (row: FunctionRow) => number | string | null>>;

export type SortKey = keyof typeof values;

export interface Sort {
  readonly key: SortKey;
  readonly descending: boolean;
}

export function sortRows(rows: readonly FunctionRow[], { key, descending }: Sort): FunctionRow[] {
  const valueOf = values[key];
  const sign = descending ? -1 : 1;
  return rows.toSorted((one, other) => {
    const a = valueOf(one);
    const b = valueOf(other);
    if (a === null || b === null) return a === b ? byName(one, other) : a === null ? 1 : -1;
    const order = typeof a === 'string' || typeof b === 'string' ? compareText(String(a), String(b)) : a - b;
    return order === 0 ? byName(one, other) : sign * order;
  });
}

const byName = (one: FunctionRow, other: FunctionRow): number => compareText(one.name, other.name);
/** f2 before f10. */
const collator = new Intl.Collator('en', { numeric: true });
const compareText = (one: string, other: string): number => collator.compare(one, other);

/** The sort after a click on a heading: the same heading reverses it; numbers start with the largest. */
export function nextSort(sort: Sort, key: SortKey): Sort {
  if (sort.key === key) return { key, descending: !sort.descending };
  return { key, descending: key !== 'name' && key !== 'residency' && key !== 'goodput' };
}

/**
 * Rows that match every word: part of the name or description, or one of `is:missing` (below 99% within its SLO),
 * `is:pinned`, `is:gpu`, `is:cpu`, `is:cold`, `is:loading`, `is:unavailable`.
 */
export function filterRows(rows: readonly FunctionRow[], filter: string): readonly FunctionRow[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length === 0 ? rows : rows.filter((row) => words.every((word) => matches(row, word)));
}

function matches(row: FunctionRow, word: string): boolean {
  switch (word) {
    case 'is:missing':
      return row.goodputShare !== null && row.goodputShare < 0.99;
    case 'is:pinned':
      return row.pinned;
    case 'is:gpu':
    case 'is:cpu':
    case 'is:cold':
    case 'is:loading':
      return row.residency === word.slice(3);
    case 'is:unavailable':
      return row.state === 'unavailable';
    default:
      return row.name.toLowerCase().includes(word) || row.description.toLowerCase().includes(word);
  }
}
