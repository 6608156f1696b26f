/**
 * Counts the lines of the source by folder and by feature: `npx tsx scripts/count-lines.ts`, with the name of a commit as
 * it was then. A shared file counts for the first feature that names its path, so that the sum is the whole.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/host/config/options.ts';

/** What each feature's files are called, the most special first. */
const features: readonly (readonly [feature: string, paths: RegExp])[] = [
  ['command line', /^src\/cli\//],
  ['page: views, style, its API', /^src\/host\/dashboard\//],
  ['reports of replays', /^src\/report\//],
  ['configuration', /^src\/host\/config\//],
  ['store of functions', /^src\/(store|host\/store)\//],
  ['versions and rollout', /^src\/host\/rollout\//],
  ['HTTP and gRPC', /^src\/host\/(http|grpc|infer)\//],
  ['limits and access', /^src\/host\/(limits|access)\//],
  ['a call in the host', /^src\/host\/(calls|split|[^/]+\.ts$)/],
  ['history, counters, metrics', /^src\/host\/(records|history|metrics)\//],
  ['queue and workers', /^src\/(queue|host\/queueing)\//],
  ['fleet', /^src\/(fleet|host\/fleet-member|schedule\/fleet|replay\/hosts)\//],
  ['scheduler', /^src\/schedule\//],
  ['live scheduler', /^src\/live\//],
  ['GPU functions in the host', /^src\/host\/gpu\//],
  ['GPU operators and kernels', /^src\/gpu\/(operators|kernels)\//],
  ['operators: shapes, rows, unrolling', /^src\/operators\//],
  ['GPU compiler', /^src\/gpu\/program\//],
  ['GPU engine and process', /^src\/gpu\/(engine|process)\//],
  ['GPU driver', /^src\/gpu\/driver\//],
  ['Chrion: planner and hybrid runs', /^src\/(gpu\/hybrid|plan\/chrion)\//],
  ['GPU gate, measuring, self-test, padding', /^src\/gpu\//],
  ['CPU pools and instances', /^src\/(cpu\/(?!profile\/)|host\/pools\/)/],
  ['Packrat and SERF', /^src\/(cpu\/profile|plan\/(packrat|serf))\//],
  ['DeepPlan and profiles', /^src\/(plan|profile)\//],
  ['which rows may share a run', /^src\/rows\//],
  ['replay: traces and generators', /^src\/replay\/(traces|generate)\//],
  ['replay: simulator and tally', /^src\/replay\//],
  ['ONNX files', /^src\/onnx\/(?!architectures\/)/],
  ['ONNX architectures', /^src\/onnx\/architectures\//],
  ['tensors', /^src\/tensor\//],
  ['processes', /^src\/process\//],
  ['hardware', /^src\/hardware\//],
  ['client and tools', /^src\//],
  ['benchmarks', /^bench\//],
  ['support of tests', /^test\/support\//],
  ['emulated driver of tests', /^test\/emulated-driver\//],
];

interface Count {
  files: number;
  all: number;
  code: number;
  comment: number;
  blank: number;
}

const isSource = (path: string): boolean =>
  /^(src|bench|test\/(support|emulated-driver))\/.*\.(m?ts|tsx|mjs|css|html|proto|cuh?|cpp|h)$/.test(path) &&
  !path.endsWith('.test.ts');

/** Lines that begin inside a comment count as comments, imports as code. */
function countOf(text: string): Count {
  const count: Count = { files: 1, all: 0, code: 0, comment: 0, blank: 0 };
  let isInside = false;
  for (const line of text
    .replace(/\n$/, '')
    .split('\n')
    .map((each) => each.trim())) {
    count.all++;
    if (line === '') count.blank++;
    else if (isInside || /^(\/\/|\/\*)/.test(line)) count.comment++;
    else count.code++;
    if (isInside) isInside = !line.includes('*/');
    else isInside = line.startsWith('/*') && !line.includes('*/');
  }
  return count;
}

const git = (...words: string[]): string =>
  execFileSync('git', words, { cwd: packageRoot, encoding: 'utf8', maxBuffer: 2 ** 28 });

const [commit] = process.argv.slice(2);
const paths = (commit === undefined ? git('ls-files') : git('ls-tree', '-r', '--name-only', commit)).split('\n');
const readAs = (path: string): string =>
  commit === undefined ? readFileSync(join(packageRoot, path), 'utf8') : git('show', `${commit}:${path}`);

const byFolder = new Map<string, Count>();
const byFeature = new Map<string, Count>(
  features.map(([name]) => [name, { ...countOf(''), files: 0, all: 0, blank: 0 }]),
);
for (const path of paths.filter(isSource)) {
  const count = countOf(readAs(path));
  const [root = '', folder = ''] = path.split('/');
  const name = root === 'bench' ? 'bench' : `${root}/${folder}`;
  const feature = features.find(([, pattern]) => pattern.test(path))?.[0] ?? 'other';
  for (const [sums, key] of [
    [byFolder, name],
    [byFeature, feature],
    ...(root === 'src' ? ([[byFolder, 'src, all of it']] as const) : []),
  ] as const) {
    const sum = sums.get(key) ?? { files: 0, all: 0, code: 0, comment: 0, blank: 0 };
    for (const each of Object.keys(count) as (keyof Count)[]) sum[each] += count[each];
    sums.set(key, sum);
  }
}

const cells = (each: readonly (string | number)[]): string => each.map((cell) => String(cell).padStart(9)).join('');
const print = (title: string, rows: ReadonlyMap<string, Count>): void => {
  console.log(`${title.padEnd(42)}${cells(['lines', 'code', 'comments', 'blank', 'files'])}`);
  for (const [name, { all, code, comment, blank, files }] of rows)
    console.log(`${name.padEnd(42)}${cells([all, code, comment, blank, files])}`);
};
print('By folder', new Map([...byFolder].toSorted(([, one], [, other]) => other.all - one.all)));
console.log();
print('By feature', byFeature);
