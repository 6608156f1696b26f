/** Writes the sample traces in traces/: `npx tsx scripts/traces.ts`. Seeded, so the files never vary. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { azureLikeTrace, poissonTrace, writeTrace, Xoshiro, type TraceInvocation } from '../src/replay/index.ts';
import { azureLikeRows, writeAzure2019, writeAzure2021 } from '../test/support/azure-traces.ts';

const seed = 20261121;

const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `function-${index}`);
/** To microseconds. */
const round = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;

export const sampleFiles = ['azure-sample.csv', 'azure-2021-sample.csv', 'shipped-functions.jsonl'] as const;

export async function writeSampleTraces(folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  // Three hours at 150 requests per second, as replayed in DeepPlan's section 5.3.2.
  const minutes = 180;
  const rows = azureLikeRows({ functionNames: names(240), ratePerS: 150, minutes, seed });
  await writeAzure2019(join(folder, 'azure-sample.csv'), minutes, rows);

  const trace = poissonTrace({
    functionNames: names(12),
    ratePerS: 0.5,
    requests: 300,
    seed,
    popularity: { kind: 'zipf', exponent: 1 },
  });
  await writeAzure2021(join(folder, 'azure-2021-sample.csv'), trace.functionNames, byEnd(trace.invocations()));

  const shipped = azureLikeTrace({
    functionNames: ['accent-restorer', 'digit-reader', 'language-id'],
    ratePerS: 8,
    minutes: 1,
    seed,
  });
  await writeTrace(join(folder, 'shipped-functions.jsonl'), shipped, 'A minute of calls to the functions that ship');
}

/** With running times from milliseconds to minutes, typical of functions, in the order of their ends. */
function byEnd(invocations: Iterable<TraceInvocation>): TraceInvocation[] {
  const random = new Xoshiro(seed);
  const all = Array.from(invocations, ({ arrivalMs, functionIndex }) => {
    const durationMs = round(1000 * 10 ** (4 * random.uniform() - 2.5));
    return { arrivalMs: round(arrivalMs), functionIndex, durationMs };
  });
  return all.sort((a, b) => a.arrivalMs + a.durationMs - b.arrivalMs - b.durationMs);
}

if (process.argv[1] === import.meta.filename) await writeSampleTraces(join(import.meta.dirname, '..', 'traces'));
