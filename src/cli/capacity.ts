import { Command, InvalidArgumentError, type AnyCommand, type OptionsOf, withFlags } from './commander.ts';
import { coresOf, withCores, withFirstGpus, type Machine } from '../hardware/index.ts';
import { capacitySteps, firstEnough, relaxed, resourcesOf } from '../replay/index.ts';
import {
  answerText,
  capacityColumns,
  capacityRows,
  capacityRun,
  renderCapacityCsv,
  shortageOf,
  type CapacityAnswer,
  type CapacityReport,
  type CapacityResource,
  type CapacityRun,
  type CapacityStep,
  type Report,
} from '../report/index.ts';
import { schedulerGpus } from '../schedule/index.ts';
import { given } from '../tools/index.ts';
import { usage } from './error.ts';
import { readMachine } from './planning.ts';
import { startCountProgress } from './progress.ts';
import { groupFlags, groupsOf, loadFlags, openLoad, warningsOf } from './replay/load.ts';
import type { Load } from './replay/load.ts';
import { outputFlags, writeForms } from './replay/output.ts';
import { machineDefault, policyFlags, simulateLoad, systemFlags, systemOn } from './replay/system.ts';
import { measureFlags } from './replay/slo.ts';
import { warningLines } from './replay/text.ts';
import { renderTable } from './table.ts';
import { flagOf, parseCount } from './values.ts';

function capacityFlags() {
  const command = new Command('capacity')
    .summary('how many GPUs, cores and hosts a load needs for its SLOs')
    .description(
      'Find the smallest machine or fleet that answers a load within its SLOs: replays on a virtual clock, by ' +
        'bisection, and why the ' +
        'next smaller size is not enough. --machine takes several: p3.8xlarge,h200x8 (eight of the GPUs of h200).',
    );
  const goals = withFlags(command, loadFlags(), groupFlags())
    .option('--goodput <share>', 'of the requests that must be answered within their SLO', parseGoodput, 0.99)
    .option('--hosts-max <number>', 'the largest fleet that is tried', parseCount, 8);
  return withFlags(goals, policyFlags(), measureFlags(), systemFlags(), outputFlags());
}

type CapacityOptions = OptionsOf<ReturnType<typeof capacityFlags>>;

export function capacityCommand(): AnyCommand {
  return capacityFlags().action(async (options) => {
    const report = await findCapacity(options);
    writeForms(options, {
      report,
      csv: () => renderCapacityCsv(report),
      text: () =>
        [
          `simulated: the smallest size for a goodput of ${report.goodput * 100}%`,
          ...warningLines(report),
          renderTable(capacityColumns, capacityRows(report)),
          ...report.answers.map(({ text }) => text),
        ].join('\n\n'),
    });
  });
}

/** "99%" or "0.99". */
function parseGoodput(text: string): number {
  const [, digits, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(text.trim()) ?? [];
  const share = Number(digits) / (percent === '%' ? 100 : 1);
  if (!(share > 0 && share <= 1)) throw new InvalidArgumentError('It must be a share such as 99% or 0.99.');
  return share;
}

async function findCapacity(options: CapacityOptions): Promise<CapacityReport> {
  if (options.hosts !== undefined) throw usage('plan capacity finds the number of hosts; --hosts-max limits it');
  if (options.hostMachines !== undefined)
    throw usage('--host-machines goes with replay: plan capacity finds the number of hosts that are alike');
  for (const key of ['failHost', 'failGpu'] as const) {
    if (options[key] === undefined) continue;
    throw usage(`${flagOf(key)} goes with replay: a size is found for machines of which all is there`);
  }
  const machines = (options.machine ?? machineDefault).split(',').map((name) => readMachine(name.trim()));
  const load = await openLoad(options, groupsOf(options));
  using progress = startCountProgress('capacity', 0, 'replays');
  let done = 0;
  let last: Report | undefined;
  const answers: CapacityReport['answers'][number][] = [];
  for (const machine of machines) {
    const answer = await searchOn(machine, load, options, (report, gpus) => {
      last = report;
      progress.update(++done, `${machine.name}, ${gpus} GPUs`);
    });
    answers.push({ ...answer, text: answerText(answer, options.goodput) });
  }
  const { hosts: _hosts, ...settings } = last?.settings ?? {};
  return {
    format: 'turntable-capacity',
    version: 1,
    simulated: true,
    ...warningsOf(last?.warnings ?? []),
    goodput: options.goodput,
    seed: options.seed,
    requests: last?.requests ?? 0,
    settings,
    answers,
  };
}

/** The search on one kind of machine. @param onRun gets the report of every replay */
async function searchOn(
  machine: Machine,
  load: Load,
  options: CapacityOptions,
  onRun: (report: Report, gpus: number) => void,
): Promise<CapacityAnswer> {
  const { goodput: goal, cpu, router: asked } = options;
  const steps = capacitySteps({
    gpusPerHost: machine.gpus.length,
    coresPerHost: coresOf(machine),
    hostsMax: options.hostsMax,
  });
  const runs = new Map<number, { readonly run: CapacityRun; readonly report: Report }>();
  const replay = async (on: Machine, hosts: number, router = asked): Promise<Report> => {
    const { router: _router, roundTrip, network, callSize, ...rest } = options;
    const fleet = hosts === 1 ? {} : given({ hosts, router, roundTrip, network, callSize });
    const report = simulateLoad(load, systemOn([{ machine: on, count: hosts }], rest), { ...rest, ...fleet });
    onRun(report, on.gpus.length * hosts);
    return report;
  };
  const runStep = async (index: number): Promise<{ readonly run: CapacityRun; readonly report: Report }> => {
    const step = steps[index]!;
    const known = runs.get(index);
    if (known !== undefined) return known;
    const report = await replay(machineOf(machine, step), step.hosts);
    const made = { run: capacityRun(step, report), report };
    runs.set(index, made);
    return made;
  };
  /** Why a size is not enough: the same load, with one resource at a time unlimited. */
  const shortage = async (index: number): Promise<CapacityAnswer['short']> => {
    const { hosts } = steps[index]!;
    const small = machineOf(machine, steps[index]!);
    const { run, report } = await runStep(index);
    const exceedsHostMemory = report.host_memory?.exceeded ?? false;
    const goodputWith: Partial<Record<CapacityResource, number | null>> = {};
    for (const resource of resourcesOf(small, { hosts, usesCpu: cpu !== undefined, exceedsHostMemory })) {
      const router = resource === 'separate hosts' ? 'one' : asked;
      goodputWith[resource] = (await replay(relaxed(small, resource), hosts, router)).goodput;
    }
    const gpus = schedulerGpus(small);
    const gpuBytes = gpus.reduce((sum, { capacityBytes }) => sum + capacityBytes, 0) * hosts;
    return shortageOf(run, report, goal, gpuBytes, goodputWith);
  };
  const coresNeeded = async (enough: CapacityRun): Promise<number> => {
    const { hosts, cores } = enough;
    const fewest = await firstEnough(cores, cores - 1, async (index) => {
      const { goodput } = await replay(withCores(machineOf(machine, enough), index + 1), hosts);
      return (goodput ?? 0) >= goal;
    });
    return (fewest ?? cores - 1) + 1;
  };
  const oneHost = Math.max(machine.gpus.length || coresOf(machine), 1) - 1;
  const at = await firstEnough(steps.length, oneHost, async (index) => {
    const { goodput } = (await runStep(index)).run;
    return goodput !== null && goodput >= goal;
  });
  const short = at === 0 ? null : await shortage((at ?? steps.length) - 1);
  const enough = at === undefined ? null : runs.get(at)!.run;
  const tried = [...runs].sort(([a], [b]) => a - b).map(([, { run }]) => run);
  const needsCores = enough !== null && enough.gpus > 0 && cpu !== undefined;
  const cores = needsCores ? await coresNeeded(enough) : null;
  return { machine: machine.name, enough, cores_needed: cores, short, runs: tried };
}

function machineOf(machine: Machine, { hosts, gpus, cores }: CapacityStep): Machine {
  return hosts > 1 || gpus > 0 ? withFirstGpus(machine, gpus / hosts) : withCores(machine, cores);
}
