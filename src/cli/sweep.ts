import { Command, type AnyCommand, type OptionsOf, withFlags } from './commander.ts';
import {
  paperMix,
  renderSweepCsv,
  renderSweepPage,
  type Report,
  type SweepReport,
  type SweepRun,
} from '../replay/index.ts';
import { policyNames, type PolicyName } from '../schedule/index.ts';
import { readMachine } from './plan/layer-source.ts';
import { loadFlags, openLoad, warningsOf } from './replay/load.ts';
import { jsonText, outputFlags, writeForms } from './replay/output.ts';
import { parsePlan, parsePolicy, simulateLoad, systemFlags, systemOf } from './replay/system.ts';
import { renderSweep } from './replay/text.ts';
import { parseFunctionRanges, parseRange } from './values.ts';
import { usage } from './error.ts';
import { given } from '../tools/index.ts';
import { startCountProgress } from './progress.ts';

function sweepFlags() {
  const command = new Command('sweep').description(
    'Replay one load on a virtual clock over numbers of functions, plans and policies: how many functions does a ' +
      'machine carry within the SLO?',
  );
  const axes = withFlags(command, loadFlags())
    .option(
      '--functions <ranges>',
      'functions by model, from..to..step: bert-base=20..240..20; several advance together',
      parseFunctionRanges,
    )
    .option('--mix <range>', "or so many in the DeepPlan paper's mix of models: 90..270..90", (text) =>
      parseRange(text).map(paperMix),
    )
    .option('--plans <list>', 'cold-start plans, such as pipeswitch,dha,pt+dha; that of the policy otherwise', (text) =>
      text.split(',').map((part) => parsePlan(part.trim())),
    )
    .option(
      '--policies <list>',
      `policies, of ${policyNames.join(', ')}`,
      (text) => text.split(',').map((part) => parsePolicy(part.trim())),
      ['best'] satisfies PolicyName[],
    );
  return withFlags(axes, systemFlags(), outputFlags());
}

type SweepOptions = OptionsOf<ReturnType<typeof sweepFlags>>;

export function sweepCommand(): AnyCommand {
  return sweepFlags().action(async (options) => {
    const sweep = await runSweep(options);
    writeForms(options, {
      json: () => jsonText(sweep),
      csv: () => renderSweepCsv(sweep),
      html: () => renderSweepPage(sweep),
      text: () => renderSweep(sweep),
    });
  });
}

async function runSweep(options: SweepOptions): Promise<SweepReport> {
  const machine = readMachine(options.machine);
  const points = options.functions ?? options.mix;
  if (points === undefined || (options.functions !== undefined && options.mix !== undefined)) {
    throw usage(
      'the numbers of functions come from one of --functions (bert-base=20..240..20) and --mix (90..270..90)',
    );
  }
  const runs: SweepRun[] = [];
  let last: Report | undefined;
  const systems = options.policies.flatMap((policy) =>
    (options.plans ?? [undefined]).map((plan) => ({ policy, plan })),
  );
  const total = systems.length * points.length;
  using progress = startCountProgress('sweep', total, 'runs');
  for (const { policy, plan: asked } of systems) {
    const each = { ...options, policy, ...given({ plan: asked }) };
    // Offers depend on the plan and are made once for each model.
    const system = systemOf(machine, each);
    const { plan } = system;
    for (const groups of points) {
      const load = await openLoad(options, groups);
      last = simulateLoad(load, system, each);
      const { functions: _functions, timeline: _timeline, per_minute: _perMinute, ...report } = last;
      const instances = groups.reduce((sum, group) => sum + group.count, 0);
      runs.push({ instances, plan, policy, report });
      progress.update(runs.length, `${plan}, ${instances} functions`);
    }
  }
  const { functions: _ranges, plan: _plan, policy: _policy, ...settings } = last?.settings ?? {};
  const { slo_ms: sloMs } = settings;
  return {
    format: 'turntable-sweep',
    version: 1,
    simulated: true,
    ...warningsOf(runs.flatMap(({ report }) => report.warnings ?? [])),
    machine: machine.name,
    seed: options.seed,
    slo_ms: typeof sloMs === 'number' ? sloMs : null,
    settings,
    runs,
  };
}
