import { Command, InvalidArgumentError } from 'commander';
import { coresOf, withCores, withFirstGpus, type Machine } from '../hardware/index.ts';
import type { ColdStartMode } from '../plan/index.ts';
import {
  answerText,
  capacityColumns,
  capacityRows,
  capacityRun,
  capacitySteps,
  firstEnough,
  relaxed,
  renderCapacityCsv,
  renderCapacityPage,
  resourcesOf,
  shortageOf,
  type CapacityAnswer,
  type CapacityReport,
  type CapacityResource,
  type CapacityRun,
  type CapacityStep,
  type Report,
} from '../replay/index.ts';
import { schedulerGpus } from '../schedule/index.ts';
import { given } from '../tools/index.ts';
import { usage } from './error.ts';
import { readMachine } from './plan/layer-source.ts';
import { startCountProgress } from './progress.ts';
import { addGroupFlags, addLoadFlags, groupsOf, openLoad } from './replay/load.ts';
import type { GroupOptions, Load, LoadOptions } from './replay/load.ts';
import { addOutputFlags, jsonText, writeForms, type OutputOptions } from './replay/output.ts';
import { addPolicyFlags, addSystemFlags, simulateLoad, systemOf, type SystemOptions } from './replay/system.ts';
import { renderTable } from './table.ts';
import { parseCount } from './values.ts';

interface CapacityOptions extends LoadOptions, GroupOptions, SystemOptions, OutputOptions {
  readonly plan?: ColdStartMode;
  readonly goodput: number;
  readonly hostsMax: number;
}

export function capacityCommand(): Command {
  const command = new Command('capacity')
    .summary('how many GPUs, cores and hosts a load needs for its SLOs')
    .description(
      'Find the smallest machine or fleet that answers a load within its SLOs: replays on a virtual clock, by ' +
        'bisection, and why the ' +
        'next smaller size is not enough. --machine takes several: p3.8xlarge,h200x8 (eight of the GPUs of h200).',
    );
  const goals = addGroupFlags(addLoadFlags(command))
    .option('--goodput <share>', 'of the requests that must be answered within their SLO', parseGoodput, 0.99)
    .option('--hosts-max <number>', 'the largest fleet that is tried', parseCount, 8);
  addOutputFlags(addSystemFlags(addPolicyFlags(goals))).action(async (options: CapacityOptions) => {
    const report = await findCapacity(options);
    writeForms(options, {
      json: () => jsonText(report),
      csv: () => renderCapacityCsv(report),
      html: () => renderCapacityPage(report),
      text: () =>
        [
          `simulated: the smallest size for a goodput of ${report.goodput * 100}%`,
          renderTable(capacityColumns, capacityRows(report)),
          ...report.answers.map(({ text }) => text),
        ].join('\n\n'),
    });
  });
  return command;
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
  if (options.failHost !== undefined)
    throw usage('--fail-host goes with replay: a size is found for hosts that are there');
  const machines = options.machine.split(',').map((name) => readMachine(name.trim()));
  const load = await openLoad(options, groupsOf(options));
  const progress = startCountProgress('capacity', 0, 'replays');
  let done = 0;
  let last: Report | undefined;
  const answers: CapacityReport['answers'][number][] = [];
  try {
    for (const machine of machines) {
      const search = new CapacitySearch(machine, load, options, (step) =>
        progress.update(++done, `${machine.name}, ${step}`),
      );
      const answer = await search.answer();
      answers.push({ ...answer, text: answerText(answer, options.goodput) });
      last = search.last;
    }
  } finally {
    progress.stop();
  }
  const { hosts: _hosts, ...settings } = last?.settings ?? {};
  return {
    format: 'turntable-capacity',
    version: 1,
    simulated: true,
    goodput: options.goodput,
    seed: options.seed,
    requests: last?.requests ?? 0,
    settings,
    answers,
  };
}

/** The search on one kind of machine. */
class CapacitySearch {
  readonly #machine: Machine;
  readonly #load: Load;
  readonly #options: CapacityOptions;
  readonly #onRun: (what: string) => void;
  readonly #steps: readonly CapacityStep[];
  readonly #runs = new Map<number, { readonly run: CapacityRun; readonly report: Report }>();
  last: Report | undefined;

  constructor(machine: Machine, load: Load, options: CapacityOptions, onRun: (what: string) => void) {
    this.#machine = machine;
    this.#load = load;
    this.#options = options;
    this.#onRun = onRun;
    this.#steps = capacitySteps({
      gpusPerHost: machine.gpus.length,
      coresPerHost: coresOf(machine),
      hostsMax: options.hostsMax,
    });
  }

  async answer(): Promise<CapacityAnswer> {
    const { goodput: goal, cpu } = this.#options;
    const oneHost = Math.max(this.#machine.gpus.length || coresOf(this.#machine), 1) - 1;
    const at = await firstEnough(this.#steps.length, oneHost, async (index) => {
      const { goodput } = (await this.#runStep(index)).run;
      return goodput !== null && goodput >= goal;
    });
    const short = at === 0 ? undefined : await this.#shortage((at ?? this.#steps.length) - 1);
    const enough = at === undefined ? null : this.#runs.get(at)!.run;
    const runs = [...this.#runs].sort(([a], [b]) => a - b).map(([, { run }]) => run);
    const needsCores = enough !== null && enough.gpus > 0 && cpu !== undefined;
    return {
      machine: this.#machine.name,
      enough,
      cores_needed: needsCores ? await this.#coresNeeded(enough) : null,
      short: short ?? null,
      runs,
    };
  }

  async #runStep(index: number): Promise<{ readonly run: CapacityRun; readonly report: Report }> {
    const known = this.#runs.get(index);
    if (known !== undefined) return known;
    const step = this.#steps[index]!;
    const report = await this.#replay(machineOf(this.#machine, step), step.hosts);
    const made = { run: capacityRun(step, report), report };
    this.#runs.set(index, made);
    return made;
  }

  /** Why a size is not enough: the same load with one resource after the other without end. */
  async #shortage(index: number): Promise<CapacityAnswer['short']> {
    const step = this.#steps[index]!;
    const machine = machineOf(this.#machine, step);
    const { run, report } = await this.#runStep(index);
    const exceedsHostMemory = report.host_memory?.exceeded ?? false;
    const goodputWith: Partial<Record<CapacityResource, number | null>> = {};
    const { hosts } = step;
    for (const resource of resourcesOf(machine, {
      hosts,
      usesCpu: this.#options.cpu !== undefined,
      exceedsHostMemory,
    })) {
      const router = resource === 'separate hosts' ? 'one' : this.#options.router;
      goodputWith[resource] = (await this.#replay(relaxed(machine, resource), hosts, router)).goodput;
    }
    const { reserve } = this.#options;
    const gpus = schedulerGpus(machine, given({ reserveBytes: reserve }));
    const gpuBytes = gpus.reduce((sum, { capacityBytes }) => sum + capacityBytes, 0) * step.hosts;
    return shortageOf(run, report, this.#options.goodput, gpuBytes, goodputWith);
  }

  async #coresNeeded({ hosts, gpus, cores }: CapacityRun): Promise<number> {
    const machine = machineOf(this.#machine, { hosts, gpus, cores });
    const fewest = await firstEnough(cores, cores - 1, async (index) => {
      const { goodput } = await this.#replay(withCores(machine, index + 1), hosts);
      return (goodput ?? 0) >= this.#options.goodput;
    });
    return (fewest ?? cores - 1) + 1;
  }

  async #replay(machine: Machine, hosts: number, router = this.#options.router): Promise<Report> {
    const { router: _router, roundTrip, network, callSize, ...rest } = this.#options;
    const fleet = hosts === 1 ? {} : given({ hosts, router, roundTrip, network, callSize });
    const report = await simulateLoad(this.#load, systemOf(machine, rest), { ...rest, ...fleet });
    this.last = report;
    this.#onRun(`${machine.gpus.length * hosts} GPUs`);
    return report;
  }
}

function machineOf(machine: Machine, { hosts, gpus, cores }: CapacityStep): Machine {
  return hosts > 1 || gpus > 0 ? withFirstGpus(machine, gpus / hosts) : withCores(machine, cores);
}
