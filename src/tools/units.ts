/** Durations and sizes as people write them ("250ms", "64MiB") and as they read them ("35 ms", "1.34 GB"). */

const durationUnits: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

const sizeUnits: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/**
 * Milliseconds of "250ms", "30s", "5m" or "1h", of "0", or of a number of milliseconds in JSON; undefined for anything
 * else. Text needs a unit: people who write 100 mean 100 ms or 100 s.
 */
export function parseDurationMs(value: unknown): number | undefined {
  return missingUnit(value) === undefined ? parseWithUnits(value, durationUnits) : undefined;
}

/** What text that is a duration without a unit may mean, as the end of a sentence. */
export function missingUnit(value: unknown): string | undefined {
  const [, digits] = typeof value === 'string' ? (/^\s*(\d+(?:\.\d+)?)\s*$/.exec(value) ?? []) : [];
  return digits === undefined || Number(digits) === 0 ? undefined : `it lacks a unit: ${digits}ms or ${digits}s?`;
}

/** Bytes of "64MiB", "10MB" or a number of bytes, rounded to a whole one; undefined for anything else. */
export function parseSizeBytes(value: unknown): number | undefined {
  const bytes = parseWithUnits(value, sizeUnits);
  return bytes === undefined ? undefined : Math.round(bytes);
}

function parseWithUnits(value: unknown, units: Readonly<Record<string, number>>): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) && value >= 0 ? value : undefined;
  if (typeof value !== 'string') return undefined;
  const [, digits, unit = ''] = /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$/.exec(value) ?? [];
  if (digits === undefined) return undefined;
  const factor = unit === '' ? 1 : Object.hasOwn(units, unit) ? units[unit] : undefined;
  return factor === undefined ? undefined : Number(digits) * factor;
}

/** The shortest exact form in milliseconds, seconds, minutes or hours: 90000 is "90s", 300000 is "5m". */
export function formatDuration(milliseconds: number): string {
  const units = Object.entries(durationUnits).reverse();
  const [unit, factor] = units.find(([, size]) => milliseconds >= size && milliseconds % size === 0) ?? ['ms', 1];
  return `${milliseconds / factor}${unit}`;
}

/** A size for people, to three digits: "1.34 GB" of 1_340_000_000. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let index = 0;
  // 999.5 would print as 1000.
  while (value >= 999.5 && index < units.length - 1) {
    value /= 1000;
    index++;
  }
  // A rate may be a fraction of a byte.
  return `${index === 0 ? Math.round(value) : Number(value.toPrecision(3))} ${units[index]}`;
}

/** A duration for people: "0.42 ms", "35 ms", "1.2 s", "3 min 5 s". */
export function formatMs(milliseconds: number): string {
  if (milliseconds < 1) return `${Number(milliseconds.toPrecision(2))} ms`;
  if (milliseconds < 999.5) return `${Number(milliseconds.toPrecision(3))} ms`;
  if (milliseconds < 60_000) return `${Number((milliseconds / 1000).toPrecision(3))} s`;
  const seconds = Math.round(milliseconds / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}
