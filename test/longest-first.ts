/**
 * The order of test files. Vitest runs one project after another and, without times of an earlier run (in CI), large
 * files first: a small file that takes a minute then starts last, and one core waits for it. Here the long ones start
 * first, then those of `test/`, and the many files beside the code that take milliseconds fill the end.
 */
import { relative, sep } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take longest, with their processes. Those that mostly wait are apart, beside others that work. */
export const longest: readonly string[] = [
  'test/bench/small.test.ts',
  'test/bench/small-fleets.test.ts',
  'test/bench/small-replays.test.ts',
  'test/project/docs-commands.test.ts',
  'test/cli/commands.test.ts',
  'test/gpu/host/process.test.ts',
  'test/store/hosts.test.ts',
  'test/gpu/host/variants.test.ts',
  'test/dashboard/page.test.ts',
  'test/project/package.test.ts',
  'test/gpu/host/families.test.ts',
  'test/gpu/host/live.test.ts',
  'test/gpu/host/handlers.test.ts',
  'test/project/examples.test.ts',
  'test/fleet/fleet.test.ts',
  'test/host/places.test.ts',
  'test/project/benchmarks.test.ts',
  'test/project/readme.test.ts',
  'test/host/store-crash.test.ts',
  'test/project/replay-page.test.ts',
  'test/host/misfortunes.test.ts',
  'test/replay/serving.test.ts',
  'src/host/store/validator.test.ts',
  'test/queue/cli.test.ts',
  'src/cli/profile.test.ts',
  'src/cpu/shared.test.ts',
  'src/cli/try.test.ts',
  'src/cpu/configured.test.ts',
  'src/cpu/instances.test.ts',
  'src/host/pools/pools-profiler.test.ts',
  'src/cpu/pools.test.ts',
  'test/gpu/engine/self-test.test.ts',
  'src/cpu/instance/weights.test.ts',
  'test/gpu/engine/faults.test.ts',
  'test/gpu/conformance/conformance.test.ts',
];

/** Projects in the order in which they run; unknown ones come last. */
const projects = ['alone', 'shared'];

export default class LongestFirst extends BaseSequencer {
  override async sort(specifications: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(specifications);
    const { root } = this.ctx.config;
    return sorted
      .map((specification, index) => ({ specification, keys: [...keysOf(specification, root), index] }))
      .sort((a, b) => compare(a.keys, b.keys))
      .map(({ specification }) => specification);
  }
}

/** Files of a project stay together: they share workers. */
function keysOf({ project, moduleId }: TestSpecification, root: string): number[] {
  const place = projects.indexOf(project.name);
  const file = relative(root, moduleId).replaceAll(sep, '/');
  const rank = longest.indexOf(file);
  const other = longest.length + Number(!file.startsWith('test/'));
  return [place < 0 ? projects.length : place, rank < 0 ? other : rank];
}

function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((key, index) => key !== b[index]);
  return at < 0 ? 0 : a[at]! - b[at]!;
}
