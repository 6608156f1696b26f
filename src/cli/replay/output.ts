/** Where reports go: the terminal, and files. */
import { readFileSync, writeFileSync } from 'node:fs';
import { Command, type OptionsOf } from '../commander.ts';
import { compiledModule } from '../../process/index.ts';
import type { CapacityReport, Comparison, Report, SweepReport } from '../../report/index.ts';
import { CliError, telling, usage } from '../error.ts';

export function outputFlags() {
  return new Command()
    .optionsGroup('The report:')
    .option('--json <file>', 'write the report as JSON (-: to standard output, and no table)')
    .option('--csv <file>', 'write the report as CSV (-: to standard output, and no table)')
    .option('--html <file>', 'write the report as a page of the dashboard, in one file');
}

export type OutputOptions = OptionsOf<ReturnType<typeof outputFlags>>;

/** A report as JSON, and its other forms, which are made only when they are asked for. */
export interface Forms {
  readonly report: Report | Comparison | SweepReport | CapacityReport;
  readonly csv: () => string;
  readonly text: () => string;
}

export function writeForms(options: OutputOptions, { report, csv, text }: Forms): void {
  const forms = { json: () => jsonText(report), csv, html: () => pageWith(report) };
  const kinds = ['json', 'csv', 'html'] as const;
  if (kinds.filter((kind) => options[kind] === '-').length > 1) {
    throw usage('only one form can go to standard output');
  }
  let spoken = false;
  for (const kind of kinds) {
    const file = options[kind];
    if (file === undefined) continue;
    if (file === '-') {
      process.stdout.write(forms[kind]());
      spoken = true;
      continue;
    }
    writeText(file, forms[kind](), 'report');
  }
  if (!spoken) console.log(text());
}

/** Writes a file and says so on standard error, where it does not mix with JSON. */
export function writeText(file: string, text: string, what: string): void {
  telling(`cannot write the ${what}`, () => writeFileSync(file, text));
  process.stderr.write(`wrote ${file}\n`);
}

/** The same report gives the same bytes. */
function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 1)}\n`;
}

/** The dashboard's page, as scripts/build.mjs builds it. */
const page = compiledModule('../../host/dashboard/page/', import.meta.url);

function pagePart(name: string): string {
  try {
    return readFileSync(new URL(name, page), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    throw new CliError('the page was not built: run `npm run build`');
  }
}

/** The page as one file that shows this data, and neither loads nor sends anything. */
export function pageWith(data: object): string {
  const security = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";
  const json = JSON.stringify(data).replaceAll('<', String.raw`\u003c`);
  // An end tag within a script or a style would end it.
  const script = pagePart('page.js').replaceAll('</script', String.raw`<\/script`);
  const style = pagePart('page.css').replaceAll('</style', String.raw`<\/style`);
  const parts: readonly (readonly [RegExp, string])[] = [
    [/<meta charset="utf-8" \/>/, `$&\n    <meta http-equiv="Content-Security-Policy" content="${security}" />`],
    [/\s*<script[^>]*><\/script>/, ''],
    [
      /<noscript>.*<\/noscript>/s,
      '<noscript>This page draws with JavaScript. Its data are in the file, as JSON.</noscript>',
    ],
  ];
  const document = parts.reduce((text, [found, instead]) => text.replace(found, instead), pagePart('index.html'));
  // Functions, so that no `$&` in these texts means anything.
  return document
    .replace(/<link rel="stylesheet"[^>]*>/, () => `<style>${style}</style>`)
    .replace(
      /<div id="app"><\/div>/,
      (app) =>
        `${app}\n    <script type="application/json" id="saved">${json}</script>\n    <script type="module">${script}</script>`,
    );
}
