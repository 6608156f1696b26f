import { basename } from 'node:path';
import { Command, Option } from 'commander';
import {
  planChrion,
  planCpuOnly,
  planGpuOnly,
  planLatencyOptimal,
  planMemoryOptimal,
  renderChrionTimeline,
  type ChrionPlan,
} from '../../plan/index.ts';
import { parseGraphProfile, type GraphProfile } from '../../profile/index.ts';
import { CliError } from '../error.ts';
import { formatBytes, formatMs } from '../format.ts';
import { renderTable } from '../table.ts';
import { addFunctionOptions, planFunction, type ChrionFunctionOptions } from './chrion-function.ts';
import { parseDuration, parseNumber, parseWhole, planned, readProfile, writePicture } from './options.ts';

interface ChrionCommandOptions extends ChrionFunctionOptions {
  readonly alpha?: number;
  readonly pattern?: 'latency' | 'memory';
}

export function chrionCommand(): Command {
  const pattern = new Option('--pattern <pattern>', 'lowest latency, or least GPU memory within a latency')
    .choices(['latency', 'memory'])
    .conflicts('alpha');
  const command = new Command('chrion')
    .summary('one graph over a GPU and CPU cores')
    .description(
      'Divide the operators of one graph between a GPU and CPU cores, for less latency or less GPU memory. With a ' +
        'function its operators are timed, and both patterns are shown side by side; without one, --profile is planned for.',
    )
    .option('--profile <file>', 'graph profile: operators and what flows between them (profiles/graph.schema.json)')
    .option('--cores <number>', 'most cores to use (default: as many as the profile has times for)', parseWhole)
    .option('--alpha <number>', 'milliseconds of latency that a MB of GPU memory is worth', parseNumber)
    .addOption(pattern)
    .option('--limit <duration>', 'with --pattern memory: the latency (default: that of the GPU alone)', parseDuration)
    .option('--svg <file>', 'draw the timeline')
    .option('--json', 'print JSON');
  return addFunctionOptions(command).action(
    async (words: string | undefined, options: ChrionCommandOptions, called: Command) => {
      if (words !== undefined) {
        if (options.alpha !== undefined || options.pattern !== undefined) {
          throw new CliError(
            '--alpha and --pattern choose one plan of a profile; with a function both patterns are shown',
            {
              exitCode: 2,
            },
          );
        }
        await planFunction(words, options, called);
        return;
      }
      if (options.profile === undefined) {
        throw new CliError('name a function, or give the times of its operators: --profile <file>', { exitCode: 2 });
      }
      if (options.limit !== undefined && options.pattern !== 'memory') {
        throw new CliError('--limit goes with --pattern memory', { exitCode: 2 });
      }
      const profile = readProfile(options.profile, parseGraphProfile);
      const plan = planned(() => planFor(profile, options));
      if (options.svg !== undefined) {
        writePicture(options.svg, renderChrionTimeline(plan, { title: basename(options.profile) }));
      }
      console.log(options.json === true ? JSON.stringify(answerOf(plan)) : tableOf(profile, plan, options));
    },
  );
}

function planFor(profile: GraphProfile, options: ChrionCommandOptions): ChrionPlan {
  const cores = options.cores === undefined ? {} : { cores: options.cores };
  if (options.alpha !== undefined) return planChrion(profile, { ...cores, alpha: options.alpha });
  if (options.pattern !== 'memory') return planLatencyOptimal(profile, cores);
  const limit = options.limit === undefined ? {} : { latencyLimitMs: options.limit };
  const plan = planMemoryOptimal(profile, { ...cores, ...limit });
  if (plan !== undefined) return plan;
  throw new CliError(`no plan that was found takes ${formatMs(options.limit ?? 0)} or less`);
}

function answerOf({ latencyMs, gpuBytes, cores, operators }: ChrionPlan): object {
  return {
    latency_ms: latencyMs,
    gpu_bytes: gpuBytes,
    cores,
    order: operators.map(({ name }) => name),
    device: Object.fromEntries(operators.map(({ name, device }) => [name, device])),
  };
}

function tableOf(profile: GraphProfile, plan: ChrionPlan, { cores }: ChrionCommandOptions): string {
  const columns = [
    { title: 'PLAN' },
    { title: 'LATENCY', align: 'right' },
    { title: 'GPU MEMORY', align: 'right' },
    { title: 'CORES', align: 'right' },
    { title: 'ON GPU', align: 'right' },
    { title: 'ON CPU', align: 'right' },
    { title: 'COPIES', align: 'right' },
  ] as const;
  const rows = [row('chosen', plan), row('GPU alone', planGpuOnly(profile))];
  if (cores !== 0) rows.push(row('CPU alone', planCpuOnly(profile, cores === undefined ? {} : { cores })));
  const copies = `A copy between host and GPU takes ${formatMs(profile.latency)} and its bytes at ${profile.bandwidth} GB/s.`;
  return `${renderTable(columns, rows)}\n${copies}`;
}

function row(name: string, plan: ChrionPlan | undefined): string[] {
  if (plan === undefined) return [name, '-', '-', '-', '-', '-', '-'];
  const onGpu = plan.operators.filter(({ device }) => device === 'gpu').length;
  return [
    name,
    formatMs(plan.latencyMs),
    formatBytes(plan.gpuBytes),
    String(plan.cores),
    String(onGpu),
    String(plan.operators.length - onGpu),
    String(plan.copies.length),
  ];
}
