// Counts ONNX's own node tests by operator, from the folder that generates them in a copy of ONNX's repository:
// `npx tsx scripts/count-node-tests.ts ONNX/onnx/backend/test/case/node VERSION` writes test/support/operator-cases/node-tests.json, which
// scripts/operators.ts weighs its cases with. Tests that a loop makes count as one.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [folder, version] = process.argv.slice(2);
if (folder === undefined || version === undefined)
  throw new Error('give the folder of the tests and the version of ONNX');

const counts = new Map<string, number>();
for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
  if (!file.endsWith('.py') || file.endsWith('__init__.py')) continue;
  const text = readFileSync(join(folder, file), 'utf8');
  const isOfMain = !file.includes('ai_onnx_');
  let last: string | undefined;
  // Each test makes a node and calls `expect` with it.
  for (const [, node, expected] of text.matchAll(/make_node\(\s*['"](\w+)['"]|(\bexpect\()/g)) {
    if (node !== undefined) last = node;
    if (expected === undefined) continue;
    const operator = last ?? /class (\w+)\(Base\)/.exec(text)?.[1] ?? file;
    const name = isOfMain ? operator : `ai.onnx.ml.${operator}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
}
const tests = Object.fromEntries([...counts].toSorted(([one], [other]) => one.localeCompare(other)));
writeFileSync(
  new URL('../test/support/operator-cases/node-tests.json', import.meta.url),
  `${JSON.stringify({ version, tests }, undefined, 2)}\n`,
);
