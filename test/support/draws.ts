/**
 * How many random inputs a property draws whose draws take a tenth of a second of a core or more, as those with an
 * engine, a host or processes do. Each run has other draws, so a few of them in each find what many would find in one.
 * `TURNTABLE_DRAWS=10 npx vitest run FILES` draws ten times as many. `.ci/run`, whose seed is fixed, draws three times as
 * many. The scheduler's properties are also those of the benchmark `seeds`, which goes on for as long as it is told.
 */
export const draws = (count: number): number => Math.ceil(count * Number(process.env['TURNTABLE_DRAWS'] ?? 1));
