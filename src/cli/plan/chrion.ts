import { basename } from 'node:path';
import { Command, Option, type AnyCommand, type OptionsOf, withFlags } from '../commander.ts';
import { type ChrionPlan, loadChrion } from '../../plan/index.ts';
import { parseGraphProfile, type GraphProfile } from '../../profile/index.ts';
import { addConfigFlags } from '../config-flags.ts';
import { CliError, usage } from '../error.ts';
import { formatMs, given } from '../../tools/index.ts';
import { renderTable } from '../table.ts';
import { functionFlags, planFunction } from './chrion-function.ts';
import { hybridPage, planAnswer, planColumns, planRow } from './chrion-report.ts';
import { planned, readProfile, writePlanPage } from '../planning.ts';
import { parseDurationMs, parseNumber, parseWhole } from '../values.ts';

const { planChrion, planCpuOnly, planGpuOnly, planMemoryOptimal } = await loadChrion();

function chrionFlags() {
  const pattern = new Option('--pattern <pattern>', 'lowest latency, or least GPU memory within a latency')
    .choices(['latency', 'memory'])
    .conflicts('alpha');
  const command = new Command('chrion')
    .summary('one graph over a GPU and CPU cores')
    .description(
      'Divide the operators of one graph between a GPU and CPU cores, for less latency or less GPU memory. With a ' +
        'function its operators are timed, and both patterns are shown side by side; without one, --profile is ' +
        'planned for.',
    )
    .option('--profile <file>', 'graph profile: operators and what flows between them (profiles/graph.schema.json)')
    .option('--cores <number>', 'most cores to use (default: as many as the profile has times for)', parseWhole)
    .option('--alpha <number>', 'milliseconds of latency that a MB of GPU memory is worth', parseNumber)
    .addOption(pattern)
    .option('--limit <duration>', 'the latency of --pattern memory (default: that of the GPU alone)', parseDurationMs)
    .option('--html <file>', 'draw the timelines as a page of the dashboard, in one file')
    .option('--json', 'print JSON')
    .argument(
      '[function]',
      "an ONNX file, a function's folder, or the name of a function: its operators are timed here",
    );
  return addConfigFlags(withFlags(command, functionFlags()), ['dataDir', 'functionsDir', 'cpu.cores']);
}

type ChrionOptions = OptionsOf<ReturnType<typeof chrionFlags>>;

export function chrionCommand(): AnyCommand {
  return chrionFlags().action(async (words, options, called) => {
    if (words !== undefined) {
      if (options.alpha !== undefined || options.pattern !== undefined) {
        throw usage('--alpha and --pattern choose one plan of a profile; with a function both patterns are shown');
      }
      await planFunction(words, options, called);
      return;
    }
    if (options.profile === undefined) {
      throw usage('name a function, or give the times of its operators: --profile <file>');
    }
    if (options.limit !== undefined && options.pattern !== 'memory') throw usage('--limit goes with --pattern memory');
    const profile = readProfile(options.profile, parseGraphProfile);
    const plan = planned(() => planFor(profile, options));
    if (options.html !== undefined) {
      writePlanPage(options.html, hybridPage(basename(options.profile), asGiven, [['chosen', plan]]));
    }
    console.log(options.json === true ? JSON.stringify(planAnswer(plan)) : tableOf(profile, plan, options));
  });
}

const asGiven = 'predicted from the profile';

function planFor(profile: GraphProfile, options: ChrionOptions): ChrionPlan {
  const cores = given({ cores: options.cores });
  if (options.pattern !== 'memory') return planChrion(profile, { ...cores, alpha: options.alpha ?? 0 });
  const plan = planMemoryOptimal(profile, { ...cores, ...given({ latencyLimitMs: options.limit }) });
  if (plan !== undefined) return plan;
  throw new CliError(`no plan that was found takes ${formatMs(options.limit ?? 0)} or less`);
}

function tableOf(profile: GraphProfile, plan: ChrionPlan, options: ChrionOptions): string {
  const rows = [planRow('chosen', plan), planRow('GPU alone', planGpuOnly(profile) ?? null)];
  return `${renderTable(planColumns, [...rows, ...cpuAloneRow(profile, options)])}\n${pricesText(profile)}`;
}

function cpuAloneRow(profile: GraphProfile, { cores }: ChrionOptions): string[][] {
  return cores === 0 ? [] : [planRow('CPU alone', planCpuOnly(profile, given({ cores })))];
}

function pricesText({ latency, bandwidth, callMs = 0 }: GraphProfile): string {
  const call = callMs === 0 ? '' : `, a call on a core ${formatMs(callMs)} beside its operators`;
  return `A copy between host and GPU takes ${formatMs(latency)} and its bytes at ${bandwidth} GB/s${call}.`;
}
