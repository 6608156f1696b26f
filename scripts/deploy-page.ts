// Writes the section of docs/deploy.md that says how many calls one core of the host carries, from results in bench/results/.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BenchmarkRun } from '../bench/report.ts';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const title = '## How many calls a core carries\n';

/** The shapes of `npm run bench -- gpu`: 384 tokens, images of 224 x 224. */
const models = [
  { name: 'bert-base', inBytes: 3 * 384 * 8, outBytes: 4 * 385 * 768 },
  { name: 'bert-large', inBytes: 3 * 384 * 8, outBytes: 4 * 385 * 1024 },
  { name: 'resnet50', inBytes: 4 * 3 * 224 * 224, outBytes: 4 * 1000 },
  { name: 'resnet101', inBytes: 4 * 3 * 224 * 224, outBytes: 4 * 1000 },
];

/** Host's milliseconds a call of an echo of so many bytes. */
interface Cost {
  readonly bytes: number;
  readonly binaryMs: number;
  readonly jsonMs: number;
}

const kept = (name: string): BenchmarkRun =>
  JSON.parse(readFileSync(join(root, `bench/results/${name}.json`), 'utf8')) as BenchmarkRun;

/** With four clients, which keep the host busy. */
function costsIn({ tables }: BenchmarkRun): Cost[] {
  const { columns, rows } = tables.find((table) => table.title === 'by the size of the body')!;
  const cell = (row: readonly string[], column: string): string => row[columns.indexOf(column)]!;
  const own = rows.filter((row) => cell(row, 'SERVER') === 'turntable' && cell(row, '>CLIENTS') === '4');
  const msOf = (bytes: string, form: string): number =>
    Number(
      cell(
        own.find((row) => cell(row, '>BYTES') === bytes && cell(row, 'FORM') === form)!,
        '>CPU MS',
      ),
    );
  return [...new Set(own.map((row) => cell(row, '>BYTES')))].map((bytes) => ({
    bytes: Number(bytes),
    binaryMs: msOf(bytes, 'binary'),
    jsonMs: msOf(bytes, 'JSON'),
  }));
}

/** Between two sizes that were measured, or on from the largest two. */
function binaryMsOf(costs: readonly Cost[], bytes: number): number {
  const above = costs.findIndex((cost) => cost.bytes >= bytes);
  const upper = above === -1 ? costs.length - 1 : Math.max(1, above);
  const [low, high] = [costs[upper - 1]!, costs[upper]!];
  return low.binaryMs + ((bytes - low.bytes) / (high.bytes - low.bytes)) * (high.binaryMs - low.binaryMs);
}

const sizeText = (bytes: number): string =>
  bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
const perSecond = (ms: number): string => Number((1000 / ms).toPrecision(2)).toLocaleString('en');
const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;

function section(): string {
  const [http, gpu, gpuCalls] = [kept('http'), kept('gpu'), kept('gpu-calls')];
  const costs = costsIn(http);
  const timesOnCpu = gpuCalls.figures['timesOnCpu']!;
  // What a GPU adds is the same for calls of any size.
  const moreMs = (timesOnCpu - 1) * binaryMsOf(costs, 4096);
  const [device = 'GPU'] = gpu.machine.gpus;
  const fed = models.map(({ name, inBytes, outBytes }) => {
    const gpuMs = gpu.figures[`${name} warmMs`]!;
    // An echo of half as many bytes moves as much.
    const hostMs = binaryMsOf(costs, (inBytes + outBytes) / 2) + moreMs;
    const gpus = (gpuMs / hostMs).toFixed(1);
    return line([
      name,
      sizeText(inBytes),
      sizeText(outBytes),
      gpuMs.toFixed(2),
      perSecond(gpuMs),
      perSecond(hostMs),
      gpus,
    ]);
  });
  return [
    title,
    'The process that answers HTTP has one core. What a call costs it depends on its bytes, in and out:\n',
    line(['tensor in and out', 'binary: CPU a call', 'calls a second', 'JSON: CPU a call', 'calls a second']),
    line(['---', '---:', '---:', '---:', '---:']),
    ...costs.map(({ bytes, binaryMs, jsonMs }) =>
      line([
        sizeText(bytes),
        `${binaryMs.toFixed(2)} ms`,
        perSecond(binaryMs),
        `${jsonMs.toFixed(2)} ms`,
        perSecond(jsonMs),
      ]),
    ),
    '',
    `Measured with four clients on ${http.machine.coresUsable} cores (${http.machine.processor}), which client, host and instance share: these are upper`,
    `limits of the cost ([bench/results/http.md](../bench/results/http.md)). A call of 4 kB costs the host ${timesOnCpu.toFixed(1)} times as much on a GPU`,
    `as on the CPU ([gpu-calls.md](../bench/results/gpu-calls.md)).\n`,
    `How many GPUs one core feeds with single calls, estimated from these and from the times of a warm run on one ${device}`,
    `([gpu.md](../bench/results/gpu.md)):\n`,
    line(['model', 'in', 'out', 'ms on the GPU', 'calls a second of a GPU', 'of a core', 'GPUs a core feeds']),
    line(['---', '---:', '---:', '---:', '---:', '---:', '---:']),
    ...fed,
    '',
    '`npm run bench -- http` measures your machine, beside servers that do less.\n\n',
  ].join('\n');
}

/** The page as it is, with this section anew. */
export function renderDeployPage(): string {
  const page = readFileSync(join(root, 'docs/deploy.md'), 'utf8');
  const from = page.indexOf(title);
  return page.slice(0, from) + section() + page.slice(page.indexOf('\n## ', from) + 1);
}
