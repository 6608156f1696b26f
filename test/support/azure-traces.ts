/** Files in the formats of Azure's traces of 2019 and 2021, for tests, benchmarks and the samples in `traces/`. */
import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { azure2019Columns } from '../../scripts/convert-trace/azure-2019.ts';
import { azure2021Header } from '../../scripts/convert-trace/azure-2021.ts';
import { azureLikeKinds, azureLikeLoads, type AzureLikeOptions, type TraceInvocation } from '../../src/replay/index.ts';

/** A function with its counts, minute by minute. */
export interface Azure2019Row {
  readonly owner: string;
  readonly app: string;
  readonly name: string;
  readonly trigger: string;
  readonly counts: ArrayLike<number>;
}

/** Writes rows in the format of 2019, one in memory at a time. */
export async function writeAzure2019(file: string, minutes: number, rows: Iterable<Azure2019Row>): Promise<void> {
  function* lines(): Generator<string> {
    const titles = Array.from({ length: minutes }, (_, minute) => minute + 1);
    yield `${[...azure2019Columns, ...titles].join(',')}\n`;
    for (const { owner, app, name, trigger, counts } of rows) {
      yield `${owner},${app},${name},${trigger},${Array.prototype.join.call(counts, ',')}\n`;
    }
  }
  await pipeline(Readable.from(lines()), createWriteStream(file));
}

/** Writes a trace in the format of 2021. Invocations without a duration get 0. */
export async function writeAzure2021(
  file: string,
  functionNames: readonly string[],
  invocations: Iterable<TraceInvocation>,
): Promise<void> {
  function* lines(): Generator<string> {
    yield `${azure2021Header}\n`;
    for (const { arrivalMs, functionIndex, durationMs = 0 } of invocations) {
      const endS = (arrivalMs + durationMs) / 1000;
      yield `turntable,${functionNames[functionIndex]},${endS},${durationMs / 1000}\n`;
    }
  }
  await pipeline(Readable.from(lines()), createWriteStream(file));
}

/** A generated mix as rows, one at a time: reading them back gives the same trace for the same seed. */
export function* azureLikeRows(options: AzureLikeOptions): Generator<Azure2019Row> {
  const kinds = azureLikeKinds(options);
  for (const [index, load] of azureLikeLoads(options).entries()) {
    const kind = kinds[index]!;
    const counts = Float64Array.from({ length: options.minutes }, (_, minute) => load.count(minute));
    const trigger = kind === 'rare' ? 'timer' : kind === 'spiky' ? 'queue' : 'http';
    yield { owner: 'turntable', app: kind, name: options.functionNames[index]!, trigger, counts };
  }
}
