/**
 * Damaged inputs of every kind must cause no crash, no hang, no 500 and no unbounded memory, and the error must say
 * what is wrong. An input that found a fault is kept in bench/fuzz/cases/; every run begins with these.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { deriveSeed, Xoshiro } from '../src/replay/generate/random.ts';
import { tableOf, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { readers, type Finding } from './fuzz/readers.ts';
import { ReaderProcess } from './fuzz/run-readers.ts';
import { openGrpc, openHttp, openValidator, type Service } from './fuzz/services.ts';

const services: Readonly<Record<string, () => Promise<Service>>> = {
  http: openHttp,
  grpc: openGrpc,
  validator: openValidator,
};
const names = [...Object.keys(readers), ...Object.keys(services)];
const casesFolder = join(import.meta.dirname, 'fuzz', 'cases');
const batch = 100;
const findingsMax = 20;

export const benchmark: Benchmark = {
  name: 'fuzz',
  description:
    'does a damaged request, frame, model, trace, plan, configuration or reply of a handler crash or hang anything',
  mustMeetAims: true,
  rowNames: () => names,
  run,
  sum: (pieces) => report(pieces as readonly Piece[]),
};

/** What one run adds to the others; stored as JSON with their result. */
interface Piece {
  readonly seed: number;
  readonly seconds: number;
  readonly outcomes: readonly Outcome[];
}

interface Outcome {
  readonly name: string;
  executions: number;
  refused: number;
  readonly findings: Finding[];
}

async function run(options: BenchmarkOptions): Promise<BenchmarkResult> {
  const chosen = names.filter((name) => options.rows?.includes(name) !== false);
  const outcomes: Outcome[] = [];
  using process = new ReaderProcess();
  const startMs = performance.now();
  const msEach = ((options.minutes ?? 5) * 60_000) / chosen.length;
  for (const name of chosen) {
    options.progress(`${name}, after ${outcomes.reduce((sum, { executions }) => sum + executions, 0)} executions`);
    const open = services[name];
    const cases = await casesOf(name);
    outcomes.push(
      open === undefined
        ? await fuzzReader(process, name, cases, options, msEach)
        : await fuzzService(name, open, cases, options, msEach),
    );
  }
  if (!options.small) for (const { findings } of outcomes) for (const finding of findings) await keep(finding);
  return report([{ seed: options.seed, seconds: (performance.now() - startMs) / 1000, outcomes }]);
}

/** Small: a number of inputs; otherwise as many as fit into the time. */
const isOver = ({ executions }: Outcome, { small }: BenchmarkOptions, smallCount: number, endMs: number): boolean =>
  small ? executions >= smallCount : performance.now() > endMs;

async function fuzzReader(
  process: ReaderProcess,
  name: string,
  cases: readonly Buffer[],
  options: BenchmarkOptions,
  ms: number,
): Promise<Outcome> {
  const outcome: Outcome = { name, executions: 0, refused: 0, findings: [] };
  const given = cases.map((each) => each.toString('base64'));
  const { seed } = options;
  if (given.length > 0) {
    const { findings } = await process.run({ reader: name, seed, from: 0, to: given.length, given });
    outcome.findings.push(...findings);
  }
  const endMs = performance.now() + ms;
  while (!isOver(outcome, options, batch, endMs) && outcome.findings.length < findingsMax) {
    const from = outcome.executions;
    const { findings, refused } = await process.run({ reader: name, seed, from, to: from + batch });
    outcome.executions += batch;
    outcome.refused += refused;
    outcome.findings.push(...findings.filter((finding) => isNew(finding, outcome.findings)));
  }
  return outcome;
}

const faultOf = (text: string): string =>
  text
    .split('\n', 2)
    .join(' ')
    .replaceAll(/'.*?'|".*?"|\d+/g, '');

/** One input for each fault; the rest of an error message differs with the input. */
function isNew({ what }: Finding, known: readonly Finding[]): boolean {
  return known.every((each) => faultOf(each.what) !== faultOf(what));
}

async function fuzzService(
  name: string,
  open: () => Promise<Service>,
  cases: readonly Buffer[],
  options: BenchmarkOptions,
  ms: number,
): Promise<Outcome> {
  const outcome: Outcome = { name, executions: 0, refused: 0, findings: [] };
  await using service = await open();
  const found = (what: string, input: Buffer): void => {
    outcome.findings.push({ reader: name, what, inputBase64: input.toString('base64') });
  };
  for (const input of cases) {
    const problem = (await service.take(input)) ?? (await service.isWell());
    if (problem !== undefined) found(problem, input);
  }
  const endMs = performance.now() + ms;
  const smallCount = Math.max(2, 300 * service.share);
  while (!isOver(outcome, options, smallCount, endMs) && outcome.findings.length < findingsMax) {
    const input = service.draw(new Xoshiro(deriveSeed(options.seed, outcome.executions++)));
    const problem = await service.take(input);
    if (problem !== undefined) found(problem, input);
    // Checked now and then: it costs a call.
    const ill = outcome.executions % 20 === 0 || problem !== undefined ? await service.isWell() : undefined;
    if (ill === undefined) continue;
    found(`${ill}, within the last 20 inputs`, input);
    break;
  }
  return outcome;
}

async function casesOf(name: string): Promise<Buffer[]> {
  const files = await readdir(casesFolder);
  const own = files.filter((file) => file.startsWith(`${name}-`)).toSorted();
  return await Promise.all(own.map((file) => readFile(join(casesFolder, file))));
}

async function keep({ reader, inputBase64 }: Finding): Promise<void> {
  const input = Buffer.from(inputBase64, 'base64');
  const hash = createHash('sha256').update(input).digest('hex').slice(0, 12);
  await writeFile(join(casesFolder, `${reader}-${hash}.bin`), input);
}

/** The sum of all pieces for each reader and service. */
function added(pieces: readonly Piece[]): Outcome[] {
  const byName = new Map<string, Outcome>();
  for (const { name, executions, refused, findings } of pieces.flatMap(({ outcomes }) => outcomes)) {
    const known = byName.get(name);
    byName.set(name, {
      name,
      executions: (known?.executions ?? 0) + executions,
      refused: (known?.refused ?? 0) + refused,
      findings: [...(known?.findings ?? []), ...findings],
    });
  }
  return [...byName.values()];
}

function report(pieces: readonly Piece[]): BenchmarkResult {
  const outcomes = added(pieces);
  const findings = outcomes.flatMap((outcome) => outcome.findings);
  const executions = outcomes.reduce((sum, each) => sum + each.executions, 0);
  const seconds = Math.round(pieces.reduce((sum, piece) => sum + piece.seconds, 0));
  return {
    settings: { runs: pieces.length, seeds: pieces.map(({ seed }) => seed).join(' '), executions, seconds },
    tables: [
      tableOf('damaged inputs', outcomes, [
        ['READ BY', (each) => each.name],
        ['>INPUTS', (each) => String(each.executions)],
        ['>REFUSED', (each) => (each.name in services ? '' : String(each.refused))],
        ['>FINDINGS', (each) => String(each.findings.length)],
      ]),
      ...(findings.length === 0
        ? []
        : [
            tableOf(
              'findings',
              findings,
              [
                ['READ BY', ({ reader }) => reader],
                ['WHAT', ({ what }) => what],
                ['INPUT, BASE64', ({ inputBase64 }) => inputBase64.slice(0, 400)],
              ],
              { kind: 'measured' as const },
            ),
          ]),
    ],
    figures: { executions, findings: findings.length },
    aims: [
      {
        aim: 'no crash, hang, status 500, unbounded memory or error without a reason',
        met: findings.length === 0,
        reached: `${findings.length} of ${executions} inputs`,
      },
    ],
    limits: ['code that no input reached: no coverage guides the damage'],
    pieces,
  };
}
