/** How many of ONNX's own node tests are of operators that the engine covers. The tests themselves are not here. */
import { readFileSync } from 'node:fs';
import { drawn } from './index.ts';

/** ONNX Runtime has no kernel on the CPU for these: training, images, and what came after it. */
const withoutKernel = new Set(
  `Adagrad Adam CausalConvWithState FlexAttention ImageDecoder LinearAttention Momentum SwiGLU`.split(' '),
);

export interface NodeTestShare {
  /** Of ONNX. */
  readonly version: string;
  readonly all: number;
  /** Of operators that ONNX Runtime has no kernel for. */
  readonly unrun: number;
  readonly run: number;
  /** Of operators that cases are drawn for. */
  readonly covered: number;
  /** The same, each by the share of its operator's cases that agree. */
  readonly weighed: number;
  readonly others: readonly (readonly [string, number])[];
}

const sum = (list: readonly (readonly [string, number])[]): number => list.reduce((all, [, count]) => all + count, 0);

/** @param shareOf the cases of an operator that agree, from 0 to 1 */
export function nodeTestShare(shareOf: (operator: string) => number): NodeTestShare {
  const text = readFileSync(new URL('node-tests.json', import.meta.url), 'utf8');
  const { version, tests } = JSON.parse(text) as {
    readonly version: string;
    readonly tests: Readonly<Record<string, number>>;
  };
  const entries = Object.entries(tests);
  const runs = entries.filter(([name]) => !withoutKernel.has(name));
  const covered = runs.filter(([name]) => drawn.has(name));
  return {
    version,
    all: sum(entries),
    unrun: sum(entries) - sum(runs),
    run: sum(runs),
    covered: sum(covered),
    weighed: covered.reduce((all, [name, count]) => all + count * shareOf(name), 0),
    others: runs.filter(([name]) => !drawn.has(name)),
  };
}
