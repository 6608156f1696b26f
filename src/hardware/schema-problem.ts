/** Checks JSON against a shipped schema; the result is one sentence that names the field, not a list of violations. */
import type { ErrorObject } from 'ajv';
import { schemaErrors } from './schema-errors.ts';

interface FieldSchema {
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly properties?: Readonly<Record<string, FieldSchema>>;
}

/** The check of a schema in `wrangler-free-config/`: a sentence about the first problem, or undefined. */
export function schemaProblem(file: string, what: string): (json: unknown) => string | undefined {
  const errorsOf = schemaErrors(file);
  return (json) => {
    const [error] = errorsOf(json);
    return error && sentenceFor(error, what);
  };
}

function sentenceFor(error: ErrorObject, what: string): string {
  const path = fieldPath(error.instancePath);
  const params = error.params as Readonly<Record<string, unknown>>;
  const field = error.parentSchema as FieldSchema;
  switch (error.keyword) {
    case 'required':
      return `the ${what} has no field '${joined(path, String(params['missingProperty']))}'`;
    case 'additionalProperties': {
      const known = Object.keys(field.properties ?? {}).join(', ');
      const unknown = joined(path, String(params['additionalProperty']));
      return `the ${what} has an unknown field '${unknown}' (known there: ${known})`;
    }
    default: {
      const subject = path === '' ? `the ${what}` : `field '${path}' of the ${what}`;
      return `${subject} is ${shown(error.data)}, but must be ${allowed(field)}`;
    }
  }
}

/** `/nodes/3/cpu/0` as `nodes[3].cpu[0]`. */
function fieldPath(pointer: string): string {
  return pointer
    .split('/')
    .slice(1)
    .reduce((path, part) => (/^\d+$/.test(part) ? `${path}[${part}]` : joined(path, part)), '');
}

function joined(path: string, field: string): string {
  return path === '' ? field : `${path}.${field}`;
}

/** A value as shown in an error: JSON, shortened. */
export function shown(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`;
  // JSON text can hold 1e999, which becomes Infinity; JSON.stringify would print null.
  if (typeof value === 'number') return String(value);
  const json = JSON.stringify(value) ?? String(value);
  return json.length > 60 ? `${json.slice(0, 57)}...` : json;
}

function allowed(field: FieldSchema): string {
  if (field.const !== undefined) return JSON.stringify(field.const);
  if (field.enum !== undefined) return field.enum.map((value) => JSON.stringify(value)).join(' or ');
  const types = typeof field.type === 'string' ? [field.type] : (field.type ?? []);
  return types.map((type) => typeText(type, field)).join(' or ');
}

function typeText(type: string, field: FieldSchema): string {
  switch (type) {
    case 'number':
    case 'integer':
      return `${type === 'integer' ? 'a whole number' : 'a number'}${rangeText(field)}`;
    case 'array': {
      const { minItems = 0, maxItems } = field;
      if (maxItems === undefined) return minItems === 0 ? 'a list' : `a list of ${minItems} or more`;
      return minItems === maxItems ? `a list of ${minItems}` : `a list of ${minItems} to ${maxItems}`;
    }
    case 'object': {
      const names = Object.keys(field.properties ?? {}).filter((name) => !name.startsWith('$'));
      return `an object with ${names.join(', ')}`;
    }
    case 'string':
      return (field.minLength ?? 0) > 0 ? 'text that is not empty' : 'text';
    default:
      return type;
  }
}

function rangeText({ minimum, maximum, exclusiveMinimum }: FieldSchema): string {
  if (exclusiveMinimum !== undefined) return ` above ${exclusiveMinimum}`;
  if (minimum !== undefined && maximum !== undefined) return ` from ${minimum} to ${maximum}`;
  if (minimum !== undefined) return ` of ${minimum} or more`;
  return '';
}
