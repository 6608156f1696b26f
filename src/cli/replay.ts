import { readFileSync } from 'node:fs';
import { basename, extname } from 'node:path';
import { Command, type OptionsOf, withFlags, type AnyCommand } from './commander.ts';
import { parseReport, writeTrace } from '../replay/index.ts';
import {
  comparisonOf,
  renderComparisonCsv,
  renderReportCsv,
  renderSweepCsv,
  summaryOf,
  sweepVerdict,
  systemsOfReports,
  type Comparison,
  type NamedReport,
  type Report,
  type SweepReport,
  type SweepRun,
} from '../report/index.ts';
import { getOrMake } from '../tools/index.ts';
import { telling, commandError, usage } from './error.ts';
import { startCountProgress } from './progress.ts';
import { axesFlags, changed, sweepOf, systemsOf, type System } from './replay/axes.ts';
import { liveFlags, replayLive } from './replay/live.ts';
import { groupFlags, groupsOf, loadFlags, openLoad, warningsOf } from './replay/load.ts';
import { outputFlags, writeForms } from './replay/output.ts';
import { RowsFile } from './replay/rows.ts';
import { policyFlags, simulateLoad, systemFlags, systemOf, type SimulatedSystem } from './replay/system.ts';
import { measureFlags } from './replay/slo.ts';
import { renderComparison, renderReport, renderSweep } from './replay/text.ts';

/** Replays of each system in a comparison. */
const seedsDefault = 5;

function replayFlags() {
  const command = new Command('replay')
    .description(
      'Replay traffic on a virtual clock, with the scheduler that serves and the costs of a machine, or with --live ' +
        'against a running host: what share of requests meets its SLO? --over replays once for each value of an ' +
        'option; two or more --system are compared. With files, shows or compares what `turntable replay --json` ' +
        'wrote.',
    )
    .argument('[reports...]', 'reports of replays to show, or to compare if there are several');
  const parts = [loadFlags(), groupFlags(), policyFlags(), measureFlags(), systemFlags(), liveFlags()] as const;
  return withFlags(command, ...parts, axesFlags(), outputFlags(), fileFlags(), saveFlags());
}

function fileFlags() {
  return new Command()
    .optionsGroup('The report:')
    .option('--rows <file>', 'write a row for each measured request as CSV, in the order in which they ended');
}

function saveFlags() {
  return new Command()
    .optionsGroup('The report:')
    .option('--save-trace <file>', "write the requests as a trace in Turntable's own format");
}

const namesIn = (...flags: readonly AnyCommand[]): ReadonlySet<string> =>
  new Set(flags.flatMap(({ options }) => options.map((option) => option.attributeName())));
/** What only a replay on a virtual clock has, and what only one at a running host has. */
const simulatedOnly = namesIn(policyFlags(), systemFlags(), axesFlags(), saveFlags());
const liveOnly = namesIn(liveFlags());

type ReplayOptions = OptionsOf<ReturnType<typeof replayFlags>>;

export function replayCommand(): AnyCommand {
  return replayFlags().action(async (files, options, command) => {
    const { over, system: texts = [] } = options;
    if (files.length > 0) {
      // Saved reports have had their load and system.
      const flag = flagGiven(command, (name) => !['json', 'csv', 'html'].includes(name));
      if (flag !== undefined) throw usage(`${flag} makes a new replay; with files, saved reports are shown`);
      const reports = namesOf(files).map((name, index): NamedReport => ({ name, report: read(files[index]!) }));
      if (reports.length === 1) writeReport(reports[0]!.report, options);
      else writeComparison(comparisonOf(systemsOfReports(reports)), options);
      return;
    }
    const isLive = options.live === true;
    const stray = flagGiven(command, (name) => (isLive ? simulatedOnly : liveOnly).has(name));
    if (stray !== undefined && isLive)
      throw usage(`${stray} is for a replay on a virtual clock; with --live the running host serves as it is set up`);
    if (stray !== undefined) throw usage(`${stray} goes with --live, which replays at a running host`);
    const systems = systemsOf(command, options, texts);
    const axis = over === undefined ? (systems.length > 0 ? '--system' : undefined) : '--over';
    if (axis !== undefined && options.saveTrace !== undefined) {
      throw usage(`--save-trace writes the requests of one replay, and ${axis} makes several`);
    }
    if (options.seeds !== undefined && (over !== undefined || systems.length < 2)) {
      throw usage('--seeds goes with two or more --system, and without --over');
    }
    if (over !== undefined && options.rows !== undefined) {
      throw usage('--rows writes the requests of one replay or of a comparison, and --over makes a sweep');
    }
    using rows = options.rows === undefined ? undefined : new RowsFile(options.rows);
    if (over !== undefined) {
      const sweep = await runSweep(command, options, over, systems);
      writeForms(options, { report: sweep, csv: () => renderSweepCsv(sweep), text: () => renderSweep(sweep) });
    } else if (systems.length > 1) writeComparison(await compareSystems(options, systems, rows), options);
    else if (isLive) writeReport(await replayLive(options, rows), options);
    else writeReport(await replaySimulated(changed(options, systems[0]?.changes ?? []), rows), options);
    rows?.finish();
  });
}

function writeReport(report: Report, options: ReplayOptions): void {
  writeForms(options, { report, csv: () => renderReportCsv(report), text: () => renderReport(report) });
}

function writeComparison(comparison: Comparison, options: ReplayOptions): void {
  writeForms(options, {
    report: comparison,
    csv: () => renderComparisonCsv(comparison),
    text: () => renderComparison(comparison),
  });
}

/** The first flag of the command line whose option has one of these names. */
function flagGiven(command: AnyCommand, isOne: (name: string) => boolean): string | null | undefined {
  const given = command.options.find((option) => {
    const name = option.attributeName();
    return isOne(name) && command.getOptionValueSource(name) === 'cli';
  });
  return given?.long;
}

/** File names without folder and ending, as far as that tells them apart. */
function namesOf(files: readonly string[]): string[] {
  const short = files.map((file) => basename(file, extname(file)));
  return short.map((name, index) => (short.indexOf(name) === short.lastIndexOf(name) ? name : files[index]!));
}

function read(file: string): Report {
  const text = telling('cannot read the report', () => readFileSync(file, 'utf8'));
  return parseReport(text, file);
}

async function replaySimulated(options: ReplayOptions, rows: RowsFile | undefined): Promise<Report> {
  const { saveTrace } = options;
  const system = systemOf(options);
  const load = await openLoad(options, groupsOf(options));
  if (saveTrace !== undefined) {
    await writeTrace(saveTrace, load.trace).catch((error: unknown) => {
      throw commandError('cannot write the trace', error);
    });
    process.stderr.write(`wrote ${saveTrace}\n`);
  }
  using progress = startCountProgress('replay', load.requestsExpected ?? 0, 'requests');
  const onMeasured = rows?.of({ seed: options.seed, functionNames: load.trace.functionNames });
  return simulateLoad(load, system, options, { onMeasured, onProgress: (arrived) => progress.update(arrived) });
}

/** The same requests on each system, and again with the seeds after the given one. */
async function compareSystems(
  options: ReplayOptions,
  systems: readonly System[],
  rows: RowsFile | undefined,
): Promise<Comparison> {
  const seeds = options.seeds ?? (options.trace === undefined ? seedsDefault : 1);
  using progress = startCountProgress('compare', systems.length * seeds, 'replays');
  let done = 0;
  const compared = [];
  for (const { name, changes } of systems) {
    const own = changed(options, changes);
    const system = systemOf(own);
    const reports: Report[] = [];
    for (let seed = own.seed; seed < own.seed + seeds; seed++) {
      const seeded = { ...own, seed };
      const load = await openLoad(seeded, groupsOf(seeded));
      const onMeasured = rows?.of({ system: name, seed, functionNames: load.trace.functionNames });
      reports.push(simulateLoad(load, system, seeded, { onMeasured }));
      progress.update(++done, name);
    }
    compared.push({ name, reports });
  }
  return comparisonOf(compared);
}

async function runSweep(
  command: AnyCommand,
  options: ReplayOptions,
  text: string,
  systems: readonly System[],
): Promise<SweepReport> {
  const { over, points } = sweepOf(command, options, text);
  const runs: SweepRun[] = [];
  const reports: Report[] = [];
  const total = Math.max(1, systems.length) * points.length;
  using progress = startCountProgress('sweep', total, 'replays');
  for (const { name, changes } of systems.length > 0 ? systems : [{ name: undefined, changes: [] }]) {
    // Offers are made once for each model of a system, unless the sweep goes over what they depend on.
    const known = new Map<string, SimulatedSystem>();
    for (const { at, change } of points) {
      const own = changed(options, [...changes, change]);
      const key = JSON.stringify([
        own.machine,
        own.hosts,
        own.hostMachines,
        own.policy,
        own.plan,
        own.batchMax,
        own.precision,
        own.shared,
      ]);
      const system = getOrMake(known, key, () => systemOf(own));
      const report = simulateLoad(await openLoad(own, groupsOf(own)), system, own);
      reports.push(report);
      runs.push({ at, system: name ?? system.plan, report: summaryOf(report) });
      progress.update(runs.length, `${over} ${at}`);
    }
  }
  const [first, ...others] = reports.map(({ settings }) => settings);
  const settings = Object.fromEntries(
    Object.entries(first ?? {}).filter(([setting, value]) => others.every((other) => other[setting] === value)),
  );
  const sloMs = settings['slo_ms'];
  const slo = { slo_ms: typeof sloMs === 'number' ? sloMs : null };
  const machines = new Set(reports.map(({ machine }) => machine));
  return {
    format: 'turntable-sweep',
    version: 2,
    simulated: true,
    ...warningsOf(reports.flatMap(({ warnings = [] }) => warnings)),
    verdict: sweepVerdict({ ...slo, over, runs }),
    machine: [...machines].join(', '),
    seed: options.seed,
    over,
    ...slo,
    settings,
    runs,
  };
}
