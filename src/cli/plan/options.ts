/** What the `plan` commands share: reading profiles, lists of numbers, writing pictures. */
import { readFileSync, writeFileSync } from 'node:fs';
import { InvalidArgumentError } from 'commander';
import { PlanError } from '../../plan/index.ts';
import { ProfileError } from '../../profile/index.ts';
import { CliError } from '../error.ts';

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

/** Writes a picture and says so on standard error, where it does not disturb JSON. */
export function writePicture(file: string, svg: string): void {
  try {
    writeFileSync(file, svg);
  } catch (error) {
    throw new CliError(`cannot write the picture: ${messageOf(error)}`, { cause: error });
  }
  process.stderr.write(`wrote ${file}\n`);
}

/** What a planner refuses is what the command line asked for. */
export function planned<Plan>(plan: () => Plan): Plan {
  try {
    return plan();
  } catch (error) {
    if (error instanceof PlanError) throw new CliError(error.message, { cause: error, exitCode: 2 });
    throw error;
  }
}

/** JSON of a list with one entry on a line, so that it can be read and compared. */
export function jsonLines(entries: readonly unknown[]): string {
  return `[\n${entries.map((entry) => `  ${JSON.stringify(entry)}`).join(',\n')}\n]`;
}

export function parseCount(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It must be a whole number of 1 or more.');
  return Number(text);
}

export function parseWhole(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('It must be a whole number of 0 or more.');
  return Number(text);
}

export function parseNumber(text: string): number {
  if (!/^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text.trim())) {
    throw new InvalidArgumentError('It must be a number of 0 or more.');
  }
  return Number(text);
}

/** A list such as `8,16,32`. */
export function parseCounts(text: string): number[] {
  return listOf(text).map(parseCount);
}

export function parseNumbers(text: string): number[] {
  return listOf(text).map(parseNumber);
}

/** Milliseconds of "250ms", "1.5s" or a number of milliseconds. */
export function parseDuration(text: string): number {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s)?$/.exec(text.trim()) ?? [];
  const durationMs = Number(digits) * (unit === 's' ? 1000 : 1);
  if (!(durationMs > 0)) throw new InvalidArgumentError('It must be a duration such as 100ms or 1.5s.');
  return durationMs;
}

function listOf(text: string): string[] {
  return text.split(',').map((part) => part.trim());
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
