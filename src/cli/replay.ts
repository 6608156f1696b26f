import { Command, type AnyCommand, type OptionsOf, withFlags } from './commander.ts';
import { renderReportCsv, renderReportPage, writeTrace, type NamedReport, type Report } from '../replay/index.ts';
import { told } from './error.ts';
import { startCountProgress } from './progress.ts';
import { liveFlags, replayLive } from './replay/live.ts';
import { readMachine } from './plan/layer-source.ts';
import { groupFlags, groupsOf, loadFlags, openLoad } from './replay/load.ts';
import { jsonText, outputFlags, writeForms } from './replay/output.ts';
import { policyFlags, simulateLoad, systemFlags, systemOf } from './replay/system.ts';
import { renderReport } from './replay/text.ts';

function replayFlags() {
  const command = new Command('replay').description(
    'Replay traffic on a virtual clock, with the scheduler that serves and the costs of a machine, or with --live ' +
      'against a running host: what share of requests meets its SLO?',
  );
  const parts = [loadFlags(), groupFlags(), policyFlags(), systemFlags(), liveFlags(), outputFlags()] as const;
  return withFlags(command, ...parts).option(
    '--save-trace <file>',
    "write the requests as a trace in Turntable's own format",
  );
}

type ReplayOptions = OptionsOf<ReturnType<typeof replayFlags>>;

export function replayCommand(): AnyCommand {
  return replayFlags().action(async (options) => {
    const report = options.live === true ? await replayLive(options) : await replaySimulated(options);
    const name = report.simulated === true ? `${String(report.settings['plan'])} on ${report.machine}` : report.machine;
    const reports: NamedReport[] = [{ name, report }];
    writeForms(options, {
      json: () => jsonText(report),
      csv: () => renderReportCsv(report),
      html: () => renderReportPage(reports),
      text: () => renderReport(report),
    });
  });
}

async function replaySimulated(options: ReplayOptions): Promise<Report> {
  const { saveTrace } = options;
  const system = systemOf(readMachine(options.machine), options);
  const load = await openLoad(options, groupsOf(options));
  if (saveTrace !== undefined) {
    await writeTrace(saveTrace, load.trace).catch((error: unknown) => {
      throw told('cannot write the trace', error);
    });
    process.stderr.write(`wrote ${saveTrace}\n`);
  }
  using progress = startCountProgress('replay', load.requestsExpected ?? 0, 'requests');
  return simulateLoad(load, system, options, (arrived) => progress.update(arrived));
}
