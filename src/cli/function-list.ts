/** The reply of `GET /functions`, as far as the commands show it. */
import { isRecord } from './values.ts';

export interface ListedFunction {
  readonly name: string;
  readonly version: string;
  readonly state: string;
  /** Why it cannot serve; '' when it can. */
  readonly reason: string;
  readonly description: string;
  /** A body to try; undefined where the function names none. */
  readonly example: string | undefined;
  readonly sloMs: number | undefined;
  readonly modelBytes: number | undefined;
}

/** Reads the reply leniently: a command must be able to list the functions of an older or newer host. */
export function parseFunctionList(json: unknown): ListedFunction[] {
  const list = Array.isArray(json) ? json : isRecord(json) ? json['functions'] : undefined;
  if (!Array.isArray(list)) return [];
  const functions: ListedFunction[] = [];
  for (const entry of list as unknown[]) {
    if (!isRecord(entry) || typeof entry['name'] !== 'string') continue;
    const { name, version, state, reason, description, example, slo_ms: sloMs, bytes } = entry;
    functions.push({
      name,
      version: typeof version === 'string' ? version : '',
      state: typeof state === 'string' ? state : '',
      reason: typeof reason === 'string' ? reason : '',
      description: typeof description === 'string' ? description : '',
      example: typeof example === 'string' ? example : undefined,
      sloMs: typeof sloMs === 'number' ? sloMs : undefined,
      modelBytes: typeof bytes === 'number' ? bytes : undefined,
    });
  }
  return functions;
}
