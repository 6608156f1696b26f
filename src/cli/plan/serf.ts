import { Command, type AnyCommand } from '../commander.ts';
import {
  evenLoadLevels,
  leastResources,
  serfTable,
  type ConfigurationPrediction,
  type LoadLevel,
  type ResourceChoice,
} from '../../plan/index.ts';
import { parseServiceProfile, type ServiceConfiguration } from '../../profile/index.ts';
import { formatMs, given } from '../../tools/index.ts';
import { renderTable } from '../table.ts';
import { jsonLines, measuredPart, planned, readProfile } from '../planning.ts';
import { parseCount, parseDurationMs, parseNumbers } from '../values.ts';

/** One load, and with an SLO the least resources that meet it. */
interface Answer extends LoadLevel {
  readonly least?: ResourceChoice | undefined;
}

export function serfCommand(): AnyCommand {
  return new Command('serf')
    .summary('mean latency under load, and the best configuration for each load')
    .description('Predict the mean latency of every configuration of a service under load, and pick the best one.')
    .requiredOption(
      '--profile <file>',
      'service profile: service times by concurrency (profiles/service.schema.json), or what `profile --json` prints',
    )
    .option(
      '--rates <list>',
      'requests per second, such as 1,2,4 (default: ten levels up to the capacity)',
      parseNumbers,
    )
    .option('--machines <number>', 'machines that share the load (default: one unit of each configuration)', parseCount)
    .option(
      '--slo <duration>',
      'also the least resources that answer within this on average, such as 250ms',
      parseDurationMs,
    )
    .option('--json', 'print JSON')
    .action((options) => {
      const profile = readProfile(options.profile, (json) => parseServiceProfile(measuredPart(json, 'service')));
      const cluster = given({ machines: options.machines });
      const answers = planned(() => {
        const rates = options.rates ?? evenLoadLevels(profile, 10, cluster);
        return serfTable(profile, rates, cluster).map((level): Answer => {
          if (options.slo === undefined) return level;
          const { ratePerSecond } = level;
          const limits = { ratePerSecond, sloMs: options.slo, machines: options.machines ?? mostNodes(profile) };
          return Object.assign(level, { least: leastResources(profile, limits) });
        });
      });
      console.log(
        options.json === true
          ? jsonLines(answers.map((answer) => answerOf(answer, options.slo !== undefined)))
          : tableOf(answers, options.slo),
      );
    });
}

/** Without a number of machines, as many as the widest configuration needs. */
function mostNodes({ configurations }: { readonly configurations: readonly ServiceConfiguration[] }): number {
  return Math.max(...configurations.map(({ nodes = 1 }) => nodes));
}

function answerOf({ ratePerSecond, best, all, least }: Answer, withLeast: boolean): object {
  const answer = {
    rate: ratePerSecond,
    best: best === undefined ? null : degreesOf(best.configuration),
    latency_ms: best === undefined ? null : latencyOf(best),
    all: all.map(predictionOf),
  };
  if (!withLeast) return answer;
  const leastAnswer =
    least === undefined
      ? null
      : {
          ...degreesOf(least.configuration),
          units: least.units,
          machines: least.machines,
          latency_ms: latencyOf(least),
        };
  return { ...answer, least: leastAnswer };
}

function degreesOf({ concurrency, threads, nodes = 1 }: ServiceConfiguration): {
  concurrency: number;
  threads: number;
  nodes: number;
} {
  return { concurrency, threads, nodes };
}

function latencyOf({ prediction }: ConfigurationPrediction): number | null {
  return prediction.state === 'stable' ? prediction.latencyMs : null;
}

function predictionOf({ configuration, prediction }: ConfigurationPrediction): object {
  const stable = prediction.state === 'stable';
  return {
    ...degreesOf(configuration),
    latency_ms: stable ? prediction.latencyMs : null,
    wait_ms: stable ? prediction.waitMs : null,
    service_ms: stable ? prediction.serviceMs : null,
    // JSON has no Infinity, which is what the load of no unit at all is.
    utilisation: Number.isFinite(prediction.utilisation) ? prediction.utilisation : null,
  };
}

function tableOf(answers: readonly Answer[], sloMs: number | undefined): string {
  const columns = [
    '>REQUESTS/S',
    '>LATENCY',
    '>WAIT',
    '>SERVICE',
    '>LOAD',
    'BEST CONFIGURATION',
    ...(sloMs === undefined ? [] : [`LEAST FOR ${formatMs(sloMs)}`]),
  ] as const;
  const rows = answers.map(({ ratePerSecond, best, least }) => {
    const { prediction } = best ?? {};
    const figures =
      best === undefined || prediction?.state !== 'stable'
        ? ['-', '-', '-', '-', 'none: all are overloaded']
        : [
            formatMs(prediction.latencyMs),
            formatMs(prediction.waitMs),
            formatMs(prediction.serviceMs),
            `${(prediction.utilisation * 100).toFixed(0)}%`,
            configurationText(best.configuration),
          ];
    const leastText =
      least === undefined
        ? 'not reachable'
        : `${configurationText(least.configuration)} on ${least.machines} ` +
          (least.machines === 1 ? 'machine' : 'machines');
    return [String(ratePerSecond), ...figures, ...(sloMs === undefined ? [] : [leastText])];
  });
  return renderTable(columns, rows);
}

function configurationText({ concurrency, threads, nodes = 1 }: ServiceConfiguration): string {
  const text = `${concurrency} at once x ${threads} ${threads === 1 ? 'thread' : 'threads'}`;
  return nodes === 1 ? text : `${text} x ${nodes} nodes`;
}
