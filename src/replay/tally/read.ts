/** Reads reports back from files, as far as a comparison needs them. */
import { schemaProblem } from '../../hardware/index.ts';
import type { Report } from '../../report/index.ts';

/** What is wrong with a report's file, in one sentence. */
export class ReportError extends Error {
  override readonly name = 'ReportError';
}

const problemOf = schemaProblem('report.schema.json', 'report');

/** Throws ReportError, which begins with `source`. */
export function parseReport(text: string, source: string): Report {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ReportError(`${source} is not JSON`);
  }
  if (typeof value !== 'object' || value === null) throw new ReportError(`${source} is no report: not a JSON object`);
  const fields = value as Record<string, unknown>;
  const { format, version } = fields;
  if (format === 'turntable-sweep') throw new ReportError(`${source} is the report of a sweep, not of one replay`);
  if (format !== 'turntable-report')
    throw new ReportError(`${source} is no report: its "format" is not "turntable-report"`);
  if (version !== 1)
    throw new ReportError(`${source} has version ${String(version)}, but this Turntable reads version 1`);
  const problem = problemOf(value);
  if (problem !== undefined) throw new ReportError(`${source} is damaged: ${problem}`);
  if ((fields['simulated'] === true) === (fields['measured'] === true)) {
    throw new ReportError(`${source} is damaged: it must be either "simulated" or "measured"`);
  }
  return value as Report;
}
