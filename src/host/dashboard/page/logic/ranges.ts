/** How far back the plots go. */
export const ranges = [
  { id: '1m', ms: 60_000, label: '1 min' },
  { id: '5m', ms: 300_000, label: '5 min' },
  { id: '15m', ms: 900_000, label: '15 min' },
  { id: '1h', ms: 3_600_000, label: '1 h' },
  { id: '6h', ms: 21_600_000, label: '6 h' },
  { id: '24h', ms: 86_400_000, label: '1 day' },
] as const;

export type Range = (typeof ranges)[number];

export const rangeOf = (id: string | null): Range => ranges.find((range) => range.id === id) ?? ranges[2];
