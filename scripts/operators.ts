// Writes docs/operators.md: runs random cases of every operator on the emulated driver and records the results. `npm
// run docs:operators`; a number of cases for each operator may follow (default 12).
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { openCuda } from '../src/gpu/driver/open.ts';
import { buildEmulatedDriver } from '../test/emulated-driver/build.ts';
import { describeCase, type Case } from '../test/support/operator-cases/case.ts';
import { checkCases, type Checked } from '../test/support/operator-cases/checking.ts';
import { casesLikeNodeTests, nodeTests } from '../test/support/operator-cases/node-tests.ts';
import { casesAsCalled, drawn } from '../test/support/operator-cases/index.ts';

const each = Number(process.argv[2] ?? 12);
const seed = 20_261_122;

const libraries = await buildEmulatedDriver();
if (libraries === undefined) throw new Error('the emulated driver needs g++');
const folder = await mkdtemp(join(tmpdir(), 'turntable-operators-'));
const cuda = openCuda({ environment: libraries.environment, cacheFolder: join(folder, 'kernels') });
/** Kernels of this many operators are one compilation. */
const together = 24;

async function checked(
  names: readonly string[],
  place: string,
  casesOf: (name: string) => Promise<readonly Case[]>,
): Promise<Map<string, Checked[]>> {
  const found = new Map<string, Checked[]>();
  for (let first = 0; first < names.length; first += together) {
    const cases: Case[] = [];
    for (const name of names.slice(first, first + together)) cases.push(...(await casesOf(name)));
    for (const one of await checkCases(cuda, cases, join(folder, place, String(first)))) {
      const { operator } = one.one;
      found.set(operator, [...(found.get(operator) ?? []), one]);
    }
  }
  return found;
}

const { version, all, unrun, counts } = nodeTests();
let byOperator: Map<string, Checked[]>;
let likeNodeTests: Map<string, Checked[]>;
try {
  byOperator = await checked([...drawn.keys()], 'drawn', async (name) => casesAsCalled(name, seed, each));
  likeNodeTests = await checked([...counts.keys()], 'called', (name) =>
    casesLikeNodeTests(name, counts.get(name)!, seed + 1),
  );
} finally {
  cuda.release();
  await rm(folder, { recursive: true, force: true });
}

const sorted = (values: Iterable<string>): string => [...new Set(values)].toSorted().join(', ');
const typeOf = ({ one }: Checked): string => one.inputs.find((input) => input !== undefined)?.tensor.datatype ?? '-';
const cell = (text: string): string =>
  text
    .replaceAll(/Load model from \S+ failed: ?/g, '')
    .replaceAll('|', '\\|')
    .replaceAll('\n', ' ');

function drawnRow(name: string, all: readonly Checked[]): string {
  const cases = all.filter(({ verdict }) => verdict.kind !== 'no case');
  const agreed = cases.filter(({ verdict }) => verdict.kind === 'agrees');
  const reasons = sorted(
    cases.flatMap(({ verdict }) =>
      verdict.kind === 'uncovered' ? [verdict.reason.replaceAll(/\[[\d,]*\]/g, '[…]')] : [],
    ),
  );
  const wrong = cases.flatMap(({ verdict }) => (verdict.kind === 'wrong' ? [`WRONG: ${verdict.what}`] : []));
  const since = agreed.length === 0 ? '-' : Math.min(...agreed.map(({ one }) => one.opset));
  const types = sorted(agreed.map(typeOf));
  const why = [reasons, ...wrong].filter((text) => text !== '').join('; ');
  return `| ${name} | ${since} | ${types || '-'} | ${agreed.length} of ${cases.length} | ${cell(why)} |`;
}

const total = { run: 0, agrees: 0, uncovered: 0, wrong: 0 };
for (const checked of byOperator.values()) {
  for (const { verdict } of checked) {
    if (verdict.kind === 'no case') continue;
    total.run++;
    total[verdict.kind]++;
  }
}

const onGpu = (name: string): number =>
  (likeNodeTests.get(name) ?? []).filter(({ verdict }) => verdict.kind === 'agrees').length;
const sum = (list: readonly number[]): number => list.reduce((one, other) => one + other, 0);
const [tests, entirely] = [sum([...counts.values()]), sum([...counts.keys()].map(onGpu))];
const lacking = [...counts].flatMap(([name, count]) => {
  const found = onGpu(name);
  return found === count ? [] : [`${name} (${found} of ${count})`];
});
const percent = (part: number, whole: number): string => `${((100 * part) / whole).toFixed(1)}%`;

const text = `# Operators on the GPU

This page is written by \`npm run docs:operators\`. The command draws ${each} cases for each operator from its specification
(attributes and their defaults, shapes with zeros and ones in them, types, operator set versions), runs them in ONNX Runtime and,
on the emulated driver, on the GPU engine, and compares shapes, types and values. Cases that
ONNX Runtime refuses do not count.

Of ${total.run} cases ${total.agrees} agree, ${total.uncovered} are not covered, and ${total.wrong} are wrong (seed ${seed}). A model with a node that is not covered
runs on the CPU pools, or under a plan over GPU and CPU ([hybrid.md](hybrid.md)); a model whose answer differs is found by the
check before the GPU serves it.

The same cases, with another seed each time, run through the validator and a CPU instance (\`test/gpu/spec/published.test.ts\`) and
through plans that divide them between GPU and CPU at random (\`test/gpu/spec/hybrid.test.ts\`); shapes and types
that are inferred without a run are compared with ONNX Runtime's too (\`test/gpu/spec/shapes.test.ts\`).

Half of the cases get every input with the call, shapes and axes too, as ONNX's own node tests do. The others have constants and
weights.

ONNX's own node tests are not used here. ${version} generates ${all} of them (a loop that makes several counts as one, and
operators written out as functions are not counted again; \`scripts/count-node-tests.ts\`). ONNX Runtime has no kernel for the
operators of ${unrun}. In place of the other ${tests} the command runs as many cases of each operator, with every input from the call:
${entirely} of ${tests}, ${percent(entirely, tests)}, run entirely on the GPU and agree. The exceptions are these operators, which run on the CPU
pools or are refused by name: ${lacking.join(', ')}.

"Since" is the oldest operator set of a case that agrees. The reasons are those that \`turntable doctor\` prints.

| Operator | Since | Types | Agree | Not covered, and why |
| --- | --- | --- | --- | --- |
${[...byOperator]
  .toSorted(([a], [b]) => a.localeCompare(b))
  .map(([name, all]) => drawnRow(name, all))
  .join('\n')}
`;

const path = join(dirname(dirname(fileURLToPath(import.meta.url))), 'docs/operators.md');
await writeFile(path, await format(text, { ...(await resolveConfig(path)), filepath: path }));
for (const [name, count] of counts) console.log(`${name}: ${onGpu(name)} of ${count} entirely on the GPU`);
console.log(
  `${entirely} of ${tests} cases like ONNX's node tests, ${percent(entirely, tests)}, run entirely on the GPU`,
);
console.log(`wrote docs/operators.md: ${JSON.stringify(total)}`);
const wrong = [...likeNodeTests.values()]
  .flat()
  .flatMap(({ one, verdict }) => (verdict.kind === 'wrong' ? [`${describeCase(one)}: ${verdict.what}`] : []));
for (const line of wrong) console.error(line);
process.exit(total.wrong + wrong.length === 0 ? 0 : 1);
