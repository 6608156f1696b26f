import { Command, type AnyCommand } from '../commander.ts';
import { fillSockets, planPackrat, type InstanceGroup, type PackratPlan } from '../../plan/index.ts';
import { parsePoolProfile } from '../../profile/index.ts';
import { formatMs } from '../../tools/index.ts';
import { renderTable } from '../table.ts';
import { jsonLines, measuredPart, planned, readProfile } from '../planning.ts';
import { parseCount, parseCounts } from '../values.ts';

export function packratCommand(): AnyCommand {
  return new Command('packrat')
    .summary('the instances that finish a batch first on CPU cores')
    .description(
      'How many instances, of how many threads and items each, finish a batch first on the cores of a machine.',
    )
    .requiredOption(
      '--profile <file>',
      'pool profile: latency by threads and batch size (profiles/pool.schema.json), or what `profile --json` prints',
    )
    .option('--threads <number>', 'threads of the pool (default: the most of the profile)', parseCount)
    .option('--batches <list>', 'batch sizes to plan for, such as 8,16,32 (default: those of the profile)', parseCounts)
    .option('--exact', "use every thread, as the paper's tables do, even where idle ones would be faster")
    .option('--threads-per-socket <number>', 'no instance gets threads of two sockets', parseCount)
    .option('--json', 'print JSON')
    .action((options) => {
      const profile = readProfile(options.profile, (json) => parsePoolProfile(measuredPart(json, 'pool')));
      const { threads = Math.max(...profile.threads), batches = profile.batches } = options;
      const sockets = fillSockets(threads, options.threadsPerSocket ?? threads);
      const plans = planned(() =>
        batches.map((batch) => planPackrat(profile, { threads, batch, sockets, idleThreads: options.exact !== true })),
      );
      console.log(options.json === true ? jsonLines(plans.map(answerOf)) : tableOf(plans));
    });
}

function answerOf(plan: PackratPlan): object {
  if (plan.state === 'infeasible') return { batch: plan.batch, latency_ms: null, instances: [] };
  const instances = plan.groups.map((group) => [group.instances, group.threads, group.batch]);
  return { batch: plan.batch, latency_ms: plan.latencyMs, instances };
}

function tableOf(plans: readonly PackratPlan[]): string {
  const columns = ['>BATCH', '>LATENCY', '>ITEMS/S', '>IDLE THREADS', 'INSTANCES'] as const;
  const rows = plans.map((plan) => {
    const { batch } = plan;
    if (plan.state === 'infeasible') return [String(batch), '-', '-', '-', 'infeasible: no profiled instances add up'];
    const itemsPerSecond = (batch / plan.latencyMs) * 1000;
    return [
      String(batch),
      formatMs(plan.latencyMs),
      String(Number(itemsPerSecond.toPrecision(3))),
      String(plan.threadsIdle),
      plan.groups.map(groupText).join(' + '),
    ];
  });
  return renderTable(columns, rows);
}

function groupText({ instances, threads, batch }: InstanceGroup): string {
  return `${instances} x (${threads} ${threads === 1 ? 'thread' : 'threads'}, batch ${batch})`;
}
