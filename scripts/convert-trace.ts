/**
 * Converts a trace of another format into Turntable's own, which `turntable replay` reads:
 * `npx tsx scripts/convert-trace.ts FROM TO`. Reads Azure Functions of 2019 and 2021, Azure's LLM inference of 2023 and
 * 2024, BurstGPT and Mooncake, packed with gzip (.gz) too.
 */
import { Command } from '../src/cli/commander.ts';
import { oneOf, parseCount, parseDurationMs, parsePositive, parseSeed } from '../src/cli/values.ts';
import { TraceError, writeTrace } from '../src/replay/index.ts';
import { given } from '../src/tools/index.ts';
import { openForeign, type ForeignOptions } from './convert-trace/open.ts';
import { minutePlacements } from './convert-trace/place.ts';

/**
 * Returns the number of calls, and warnings. An existing file is overwritten.
 *
 * @throws TraceError where the trace cannot be read, or no call is left of it
 */
export async function convertTrace(
  from: string,
  to: string,
  options: ForeignOptions = {},
): Promise<{ readonly calls: number; readonly warnings: readonly string[] }> {
  const trace = await openForeign(from, options);
  let calls = 0;
  const counted = {
    functionNames: trace.functionNames,
    *invocations() {
      for (const invocation of trace.invocations()) {
        calls++;
        yield invocation;
      }
    },
  };
  await writeTrace(to, counted, `converted from ${trace.format}`);
  if (calls === 0) throw new TraceError(`no invocation of ${from} is left in ${to}`);
  return { calls, warnings: trace.warnings };
}

if (process.argv[1] === import.meta.filename) {
  const command = new Command('convert-trace')
    .description("convert a trace of another format into Turntable's own")
    .argument('<from>', "Azure Functions 2019 or 2021, Azure's LLM inference, BurstGPT or Mooncake (.gz too)")
    .argument('<to>', 'the file to write, such as trace.jsonl')
    .option('--functions <number>', 'fold functions of 2019, or deal calls of language models at random', parseCount)
    .option('--from <time>', 'begin at this time of a trace of 2019', parseDurationMs)
    .option('--duration <time>', 'end a trace of 2019 after this time, such as 3h', parseDurationMs)
    .option('--rate <rate>', 'scale a trace of 2019 to so many requests per second on average', parsePositive)
    .option('--placement <how>', `arrivals in minutes of 2019: ${minutePlacements.join(', ')}`, oneOf(minutePlacements))
    .option('--as-artifact', "scale, fold and place a trace of 2019 as the DeepPlan artifact's client does")
    .option('--seed <integer>', 'the same seed gives the same trace', parseSeed)
    .parse();
  const [from = '', to = ''] = command.args;
  const { functions, from: fromMs, duration, rate: ratePerS, placement, asArtifact, seed } = command.opts();
  const toMs = duration === undefined ? undefined : (fromMs ?? 0) + duration;
  try {
    const options = given({ functions, fromMs, toMs, ratePerS, placement, asArtifact, seed });
    const { calls, warnings } = await convertTrace(from, to, options);
    for (const warning of warnings) console.error(`warning: ${warning}`);
    console.log(`${to}: ${calls.toLocaleString('en-US')} calls`);
  } catch (error) {
    if (!(error instanceof TraceError)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  }
}
