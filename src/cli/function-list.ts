/** The part of the reply of `GET /functions` that commands show. */
import { listIn } from './values.ts';

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

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

/** Reads the reply leniently: a command must be able to list the functions of an older or newer host. */
export function parseFunctionList(json: unknown): ListedFunction[] {
  return listIn<Record<string, unknown>>(Array.isArray(json) ? { functions: json } : json, 'functions')
    .filter(({ name }) => typeof name === 'string')
    .map((each) => ({
      name: text(each['name']),
      version: text(each['version']),
      state: text(each['state']),
      reason: text(each['reason']),
      description: text(each['description']),
      example: typeof each['example'] === 'string' ? each['example'] : undefined,
      sloMs: number(each['slo_ms']),
      modelBytes: number(each['bytes']),
    }));
}
