// Writes docs/operators.md: runs random cases of every operator on the emulated driver and says what came of them.
// `npm run docs:operators`; a number of cases for each operator may follow (default 12).
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { openCuda } from '../src/gpu/driver/open.ts';
import { operators } from '../src/gpu/operators/index.ts';
import { buildEmulatedDriver } from '../test/emulated-driver/build.ts';
import { caseGroups } from '../test/gpu/conformance/cases/index.ts';
import { checkCases, type Checked } from '../test/support/operator-cases/checking.ts';
import { nodeTestShare } from '../test/support/operator-cases/node-tests.ts';
import { casesAsCalled, drawn } from '../test/support/operator-cases/index.ts';

const each = Number(process.argv[2] ?? 12);
const seed = 20_261_122;

const libraries = await buildEmulatedDriver();
if (libraries === undefined) throw new Error('the emulated driver needs g++');
const folder = await mkdtemp(join(tmpdir(), 'turntable-operators-'));
const cuda = openCuda({ libraries, cacheFolder: join(folder, 'kernels') });
const byOperator = new Map<string, Checked[]>();
try {
  const names = [...drawn.keys()];
  // Kernels of some operators together are one compilation.
  const together = 24;
  for (let first = 0; first < names.length; first += together) {
    const cases = names.slice(first, first + together).flatMap((name) => casesAsCalled(name, seed, each));
    for (const checked of await checkCases(cuda, cases, join(folder, String(first)))) {
      const { operator } = checked.one;
      byOperator.set(operator, [...(byOperator.get(operator) ?? []), checked]);
    }
  }
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

const writtenRows = operators
  .map(({ type }) => type)
  .filter((type) => !drawn.has(type) && !type.startsWith('turntable.'))
  .map((type) => {
    const cases = Object.values(caseGroups).flatMap((group) => group.filter(({ operator }) => operator === type));
    const types = sorted(
      cases.map(({ inputs }) => inputs.find((input) => input !== undefined)?.tensor.datatype ?? '-'),
    );
    return `| ${type} | ${Math.min(...cases.map(({ opset }) => opset))} | ${types} | ${cases.length} |`;
  });

const total = { run: 0, agrees: 0, uncovered: 0, wrong: 0 };
for (const checked of byOperator.values()) {
  for (const { verdict } of checked) {
    if (verdict.kind === 'no case') continue;
    total.run++;
    total[verdict.kind]++;
  }
}

const shareOf = (name: string): number => {
  const cases = (byOperator.get(name) ?? []).filter(({ verdict }) => verdict.kind !== 'no case');
  return cases.length === 0 ? 0 : cases.filter(({ verdict }) => verdict.kind === 'agrees').length / cases.length;
};
const nodeTests = nodeTestShare(shareOf);
const percent = (part: number, whole: number): string => `${((100 * part) / whole).toFixed(1)}%`;

const text = `# Operators on the GPU

This page is written by \`npm run docs:operators\`. The command draws ${each} cases for each operator from its specification
(attributes and their defaults, shapes with zeros and ones in them, types, operator set versions), runs them in ONNX Runtime and,
on the emulated driver, on the GPU engine, and compares shapes, types and values. What ONNX Runtime does not run itself is no
case.

Of ${total.run} cases ${total.agrees} agree, ${total.uncovered} are not covered, and ${total.wrong} are wrong (seed ${seed}). A model with a node that is not covered
runs on the CPU pools, or under a plan over GPU and CPU ([hybrid.md](hybrid.md)); a model whose answer differs is found by the
check before the GPU serves it.

The same cases, of another seed each time, go through the validator and a CPU instance (\`test/gpu/spec/published.test.ts\`) and
through plans that divide them between GPU and CPU at random (\`test/gpu/spec/hybrid.test.ts\`); what is inferred of their shapes
and types without a run is held against ONNX Runtime too (\`test/gpu/spec/shapes.test.ts\`).

Half of the cases have every input from the call, as ONNX's own node tests do, the shapes and axes among them; the others have
constants and weights.

ONNX's own node tests are not run here. ${nodeTests.version} generates ${nodeTests.all} of them (a loop that makes several counts as
one, and operators written out as functions are not counted again; \`scripts/count-node-tests.ts\`). ONNX Runtime has no kernel for the operators of
${nodeTests.unrun}. Of the other ${nodeTests.run}, ${nodeTests.covered} are of operators in this table. Weighed with the share of its cases that
agree, that is an estimate of ${percent(nodeTests.weighed, nodeTests.run)} on the GPU. The others, which run on the CPU pools or are refused by name:
${nodeTests.others.map(([name, count]) => `${name} (${count})`).join(', ')}.

"Since" is the oldest operator set of a case that agrees. The reasons are those that \`turntable doctor\` prints.

| Operator | Since | Types | Agree | Not covered, and why |
| --- | --- | --- | --- | --- |
${[...byOperator]
  .toSorted(([a], [b]) => a.localeCompare(b))
  .map(([name, all]) => drawnRow(name, all))
  .join('\n')}
${
  writtenRows.length === 0
    ? ''
    : `
These have written cases alone, all of which agree (\`test/gpu/conformance\`):

| Operator | Since | Types | Cases |
| --- | --- | --- | --- |
${writtenRows.join('\n')}
`
}`;

const path = join(dirname(dirname(fileURLToPath(import.meta.url))), 'docs/operators.md');
await writeFile(path, await format(text, { ...(await resolveConfig(path)), filepath: path }));
console.log(`wrote docs/operators.md: ${JSON.stringify(total)}`);
process.exit(total.wrong === 0 ? 0 : 1);
