/** What the `plan` commands share: reading machines and profiles, writing pages. */
import { readFileSync } from 'node:fs';
import { loadMachineOf, MachineError, probeMachine, type Machine } from '../hardware/index.ts';
import type { PlanReport } from '../host/index.ts';
import { PlanError } from '../plan/index.ts';
import { ProfileError } from '../profile/index.ts';
import { spoken, telling, commandError } from './error.ts';
import { pageWith, writeText } from './replay/output.ts';

/** The machine that a command names. Throws CliError. */
export function readMachine(name: string): Machine {
  return spoken([MachineError], () => (name === 'here' ? probeMachine() : loadMachineOf(name)));
}

/** Reads a profile. Throws CliError with the file's name and what is wrong with it. */
export function readProfile<Profile>(file: string, parse: (json: unknown) => Profile): Profile {
  const text = telling('cannot read the profile', () => readFileSync(file, 'utf8'));
  const json = telling(`${file} is not JSON`, (): unknown => JSON.parse(text));
  try {
    return parse(json);
  } catch (error) {
    throw error instanceof ProfileError ? commandError(file, error) : error;
  }
}

/** One planner's profile out of the JSON of `turntable profile --json`; other JSON is returned unchanged. */
export function measuredPart(json: unknown, part: 'pool' | 'service'): unknown {
  const isMeasured = typeof json === 'object' && json !== null && 'pool' in json && 'service' in json;
  return isMeasured ? json[part] : json;
}

/** Writes a plan's timelines as a page. */
export function writePlanPage(file: string, plan: Omit<PlanReport, 'format' | 'version'>): void {
  const report: PlanReport = { format: 'turntable-plan', version: 1, ...plan };
  writeText(file, pageWith(report), 'page');
}

/** A plan error means that the command line asked for something impossible. */
export function planned<Plan>(plan: () => Plan): Plan {
  return spoken([PlanError], plan);
}

/** JSON of a list with one entry on a line, so that it can be read and compared. */
export function jsonLines(entries: readonly unknown[]): string {
  return `[\n${entries.map((entry) => `  ${JSON.stringify(entry)}`).join(',\n')}\n]`;
}
