/** What the `plan` commands share: reading profiles, lists of numbers, writing pictures. */
import { readFileSync } from 'node:fs';
import { PlanError } from '../plan/index.ts';
import { ProfileError } from '../profile/index.ts';
import { CliError, spoken } from './error.ts';
import { writeText } from './replay/output.ts';

/** Reads a profile. Throws CliError with the file's name and what is wrong with it. */
export function readProfile<Profile>(file: string, parse: (json: unknown) => Profile): Profile {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new CliError(`cannot read the profile: ${messageOf(error)}`, { cause: error });
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new CliError(`${file} is not JSON: ${messageOf(error)}`, { cause: error });
  }
  try {
    return parse(json);
  } catch (error) {
    if (!(error instanceof ProfileError)) throw error;
    throw new CliError(`${file}: ${error.message}`, { cause: error });
  }
}

/** Of what `turntable profile --json` prints, the profile that a planner reads; any other JSON as it is. */
export function measuredPart(json: unknown, part: 'pool' | 'service'): unknown {
  const isMeasured = typeof json === 'object' && json !== null && 'pool' in json && 'service' in json;
  return isMeasured ? json[part] : json;
}

export const writePicture = (file: string, svg: string): void => writeText(file, svg, 'picture');

/** What a planner refuses is what the command line asked for. */
export function planned<Plan>(plan: () => Plan): Plan {
  return spoken([PlanError], plan);
}

/** JSON of a list with one entry on a line, so that it can be read and compared. */
export function jsonLines(entries: readonly unknown[]): string {
  return `[\n${entries.map((entry) => `  ${JSON.stringify(entry)}`).join(',\n')}\n]`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
