/** Where reports go: the terminal, and files. */
import { writeFileSync } from 'node:fs';
import { Command, type OptionsOf } from '../commander.ts';
import { telling, usage } from '../error.ts';

export function outputFlags() {
  return new Command()
    .optionsGroup('The report:')
    .option('--json <file>', 'write the report as JSON (-: to standard output, and no table)')
    .option('--csv <file>', 'write the report as CSV (-: to standard output, and no table)')
    .option('--html <file>', 'write the report as a page with plots, in one file');
}

export type OutputOptions = OptionsOf<ReturnType<typeof outputFlags>>;

/** The forms of one report, made only when they are asked for. */
export interface Forms {
  readonly json: () => string;
  readonly csv: () => string;
  readonly html: () => string;
  readonly text: () => string;
}

export function writeForms(options: OutputOptions, forms: Forms): void {
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
  if (!spoken) console.log(forms.text());
}

/** Writes a file and says so on standard error, where it does not mix with JSON. */
export function writeText(file: string, text: string, what: string): void {
  telling(`cannot write the ${what}`, () => writeFileSync(file, text));
  process.stderr.write(`wrote ${file}\n`);
}

/** The same report gives the same bytes. */
export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 1)}\n`;
}
