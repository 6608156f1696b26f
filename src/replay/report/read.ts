/** Reports read back from files, as far as a comparison needs them. */
import type { Report } from './types.ts';

/** What is wrong with a report's file, in one sentence. */
export class ReportError extends Error {
  override readonly name = 'ReportError';
}

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
  for (const field of ['requests', 'shed', 'offloaded', 'failed', 'evictions', 'requests_per_s']) {
    if (typeof fields[field] !== 'number') throw new ReportError(`${source} is damaged: "${field}" is not a number`);
  }
  for (const field of ['p50_ms', 'p95_ms', 'p99_ms', 'p999_ms', 'goodput', 'cold_start_rate']) {
    if (typeof fields[field] !== 'number' && fields[field] !== null) {
      throw new ReportError(`${source} is damaged: "${field}" is neither a number nor null`);
    }
  }
  for (const field of ['gpus', 'models', 'per_minute', 'timeline', 'functions']) {
    if (!Array.isArray(fields[field])) throw new ReportError(`${source} is damaged: "${field}" is not a list`);
  }
  for (const field of ['settings', 'evictions_by_cause', 'failures_by_reason']) {
    if (typeof fields[field] !== 'object' || fields[field] === null) {
      throw new ReportError(`${source} is damaged: "${field}" is not an object`);
    }
  }
  const changes = fields['plan_changes'] as Record<string, unknown> | null | undefined;
  if (changes !== undefined && (typeof changes?.['smaller'] !== 'number' || typeof changes['larger'] !== 'number')) {
    throw new ReportError(`${source} is damaged: "plan_changes" does not have the numbers "smaller" and "larger"`);
  }
  if ((fields['simulated'] === true) === (fields['measured'] === true)) {
    throw new ReportError(`${source} is damaged: it must be either "simulated" or "measured"`);
  }
  return value as Report;
}
