import { readFileSync } from 'node:fs';
import { basename, extname } from 'node:path';
import { Command, type AnyCommand } from './commander.ts';
import { parseReport, renderReportPage, type NamedReport } from '../replay/index.ts';
import { telling } from './error.ts';
import { jsonText, writeForms } from './replay/output.ts';
import { renderComparison } from './replay/text.ts';

export function compareCommand(): AnyCommand {
  return new Command('compare')
    .description(
      'Lay reports of replays side by side: simulated and measured, one plan and another. Ratios are to the first; + ' +
        'is better, - is worse.',
    )
    .argument('<reports...>', 'JSON files that `turntable replay --json` wrote')
    .option('--html <file>', 'write a page with plots of all')
    .option('--json <file>', 'write the figures of all as JSON (-: to standard output)')
    .action((files, options) => {
      const reports = namesOf(files).map((name, index): NamedReport => ({ name, report: read(files[index]!) }));
      writeForms(options, {
        json: () => jsonText(reports.map(({ name, report }) => figuresOf(name, report))),
        csv: () => '',
        html: () => renderReportPage(reports),
        text: () => renderComparison(reports),
      });
    });
}

/** A report without its rows. */
function figuresOf(name: string, report: NamedReport['report']): object {
  const { functions: _functions, timeline: _timeline, per_minute: _perMinute, ...figures } = report;
  return { name, ...figures };
}

/** File names without folder and ending, as far as that tells them apart. */
function namesOf(files: readonly string[]): string[] {
  const short = files.map((file) => basename(file, extname(file)));
  return short.map((name, index) => (short.indexOf(name) === short.lastIndexOf(name) ? name : files[index]!));
}

function read(file: string): NamedReport['report'] {
  const text = telling('cannot read the report', () => readFileSync(file, 'utf8'));
  return parseReport(text, file);
}
