/**
 * Tests what this machine's GPUs can do, at their first use and after a change of GPUs, driver, libraries or engine.
 * The tests run in a child process. A belief during whose test it dies does not hold, and the next test gets a new
 * process.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeWhole } from '../../tools/index.ts';
import { compiledModule, GoneError, OnDemand } from '../../process/index.ts';
import { asGpuError, GpuError, type Capability } from '../types.ts';
import { beliefs, lacksOf, type Belief, type BeliefResult, type SelfTestReport } from './beliefs.ts';

export interface BeliefApi {
  identify(order: { readonly cacheFolder: string }): string;
  /** `without`: capabilities that earlier tests found missing. */
  test(order: {
    readonly cacheFolder: string;
    readonly belief: Belief;
    readonly without: readonly Capability[];
  }): string;
}

export interface SelfTestOptions {
  /** For results, kernels and programs. */
  readonly cacheFolder: string;
  /** See {@link identityOf}. Default: that of the child process. */
  readonly identity?: string;
  /** Test again even if results are kept. */
  readonly again?: boolean;
  readonly environment?: NodeJS.ProcessEnv;
}

/** Long, since the first use of a library on a slow disk takes seconds. */
const beliefMsMax = 60_000;

const untested = 'not tested';

const module = compiledModule('./test-process.js', import.meta.url);

/** @throws GpuError 'unavailable' if there is no driver or GPU */
export async function selfTest(options: SelfTestOptions): Promise<SelfTestReport> {
  const { cacheFolder, again = false, environment = process.env } = options;
  let { identity } = options;
  const tester = new OnDemand<BeliefApi>({
    what: 'the process that tested it',
    inOrder: true,
    errors: { GpuError },
    errorOf: (error) => asGpuError(error, error instanceof GoneError ? 'died' : 'misuse'),
    process: { module, environment },
  });
  const limit = { timeMsMax: beliefMsMax };
  const ask = async (call: () => Promise<string>): Promise<string> => {
    try {
      return await call();
    } catch (error) {
      if (error instanceof GpuError && (error.isFatal || error.code === 'died'))
        await tester.end('what it tested went wrong');
      throw error;
    }
  };
  try {
    identity ??= await ask(() => tester.running.call('identify', { cacheFolder }, limit));
    const file = join(cacheFolder, 'self-tests', `${identity}.json`);
    const kept = again ? undefined : await readReport(file, identity);
    if (kept !== undefined) return kept;
    const results = await testAll((belief, without) =>
      ask(() => tester.running.call('test', { belief, without, cacheFolder }, limit)),
    );
    const report = { identity, results };
    // If memory was too short for a test, the report is not kept, so that the next start tests again.
    const isComplete = results.every((result) => !result.holds || !result.detail.startsWith(untested));
    if (isComplete) await writeWhole(file, JSON.stringify(report, null, 2));
    return report;
  } finally {
    void tester.end('the self-test is over');
  }
}

async function testAll(
  test: (belief: Belief, without: readonly Capability[]) => Promise<string>,
): Promise<BeliefResult[]> {
  const results: BeliefResult[] = [];
  for (const { belief } of beliefs) {
    const { unusable, without } = lacksOf(results);
    if (unusable !== undefined) break;
    results.push(await testOne(belief, () => test(belief, [...without])));
  }
  return results;
}

async function testOne(belief: Belief, test: () => Promise<string>): Promise<BeliefResult> {
  try {
    return { belief, holds: true, detail: await test() };
  } catch (error) {
    const { code, message } = asGpuError(error);
    if (code === 'unavailable') throw error;
    const isShortage = code === 'out-of-memory' || code === 'host-memory';
    if (isShortage) return { belief, holds: true, detail: `${untested}: ${message}` };
    return { belief, holds: false, reason: message };
  }
}

/** Undefined if there is no report, or a damaged one. */
async function readReport(file: string, identity: string): Promise<SelfTestReport | undefined> {
  try {
    const report = JSON.parse(await readFile(file, 'utf8')) as SelfTestReport;
    const isWhole = report.identity === identity && Array.isArray(report.results);
    return isWhole && (report.results.length === beliefs.length || lacksOf(report.results).unusable !== undefined)
      ? report
      : undefined;
  } catch {
    return undefined;
  }
}
