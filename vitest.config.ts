import { getPriority, setPriority } from 'node:os';
import { defineConfig } from 'vitest/config';
import LongestFirst from './test/longest-first.ts';
import { minuteMs, waitLimitMs } from './test/time-limits.ts';

// A fixed seed in CI keeps a red run reproducible; elsewhere every run explores, and prints the seed it used.
// Each project evaluates this file anew.
process.env['TURNTABLE_SEED'] ??= process.env['CI'] === undefined ? String(Date.now() % 2 ** 31) : '20261121';
const seed = process.env['TURNTABLE_SEED'];

// Node 20 reads the certificates that this names at each start, which takes 50 ms of a core. Tests start some thousand
// processes, and none of them opens a connection to another machine.
delete process.env['NODE_EXTRA_CA_CERTS'];

// Instances run at this niceness. Beside three workers that are compiling they would wait seconds for a core.
if (getPriority() < 10) setPriority(10);

/** Tests beside the code that start processes or work for seconds: `npm run test:unit` leaves them out. */
const slow = [
  'src/cli/**/*.test.ts',
  'src/cpu/*.test.ts',
  'src/cpu/{instance,profile/measure}/**/*.test.ts',
  'src/gpu/{driver,hybrid,program}/**/*.test.ts',
  'src/host/store/*.test.ts',
  'src/host/gpu/variants/make-variants.test.ts',
  'src/host/pools/pools-profiler.test.ts',
  'src/onnx/{extract,malformed}.test.ts',
  'src/onnx/architectures/*.test.ts',
  'src/plan/{packrat,serf}/*.test.ts',
  'src/process/*.test.ts',
  'src/replay/foresight.test.ts',
  'src/replay/tally/report.test.ts',
];

/** `npm run test:unit`: only what stands beside the code and is done in milliseconds. */
const onlyUnit = process.env['TURNTABLE_TEST_UNIT'] === '1';

/** These have a worker each: they set what can be set once in a process, or measure it. */
const alone = ['test/emulated-driver/*.test.ts', 'test/bench/small*.test.ts'];

/**
 * All others share the modules of their worker. Each file read and compiled them anew before: half of the work of the
 * engines' tests. They give back what they take (processes, ports, folders, environment), so that no file finds traces
 * of another. All of them are one project, because Vitest transforms each source file once per project, and starts the
 * workers of a project anew.
 */
const isolate = false;
const globalSetup = ['test/global-setup.ts'];
const shared = onlyUnit
  ? { include: ['src/**/*.test.ts'], exclude: slow }
  : { include: ['{src,test}/**/*.test.ts'], exclude: alone };

export default defineConfig({
  test: {
    env: {
      TURNTABLE_SEED: seed,
      // Each host would start two processes that no call needs, a tenth of a second of a core each. Where they are
      // what a test is about, it asks for them; test/project/readme.test.ts runs a host as it ships.
      TURNTABLE_CPU_BLANK_INSTANCES: '0',
      // A step of a handler has a second by default, and on a slow machine needs more now and then.
      TURNTABLE_DEFAULTS_TIMEOUTS_HANDLER: `${waitLimitMs}ms`,
      TURNTABLE_DEFAULTS_TIMEOUTS_LOAD: `${waitLimitMs}ms`,
      TURNTABLE_DEFAULTS_TIMEOUTS_INFER: `${waitLimitMs}ms`,
    },
    setupFiles: ['test/setup.ts'],
    // These limits end what hangs: no test takes a minute on two quiet cores. A slower machine makes the run longer,
    // not red, so tests and waits set no shorter limits themselves.
    testTimeout: 20 * minuteMs,
    hookTimeout: 20 * minuteMs,
    teardownTimeout: 5 * minuteMs,
    expect: { poll: { timeout: waitLimitMs } },
    // One more than the two cores of CI: most files wait for their processes now and then. Four gained nothing.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    // Keeps transformed files in node_modules/, under a hash of their content, for the next run.
    experimental: { fsModuleCache: true },
    projects: [
      { extends: true, test: { name: 'shared', globalSetup, isolate, ...shared } },
      { extends: true, test: { name: 'alone', globalSetup, include: onlyUnit ? [] : alone } },
    ],
  },
});
