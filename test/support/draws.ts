/**
 * How many random inputs a property draws whose draws take a tenth of a second of a core or more, as those with an
 * engine, a host or processes do. Each run has other draws, so a few of them in each find what many would find in one.
 * `TURNTABLE_DRAWS=10 npx vitest run FILES` draws ten times as many; so do the benchmarks `seeds`, `fuzz` and `chaos`,
 * which go on for as long as they are told.
 */
export const draws = (count: number): number => Math.ceil(count * Number(process.env['TURNTABLE_DRAWS'] ?? 1));
