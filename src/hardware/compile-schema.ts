/**
 * Makes a check out of a JSON schema. In dist/ the build puts checks that it generated in this module's place
 * (scripts/schema-checks.mjs): loading ajv and compiling a schema takes longer than the rest of a command's start.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type * as AjvModule from 'ajv';
import type { Options, ValidateFunction } from 'ajv';

/** @param file a schema's path in `wrangler-free-config/` */
export function compileSchema(file: string): ValidateFunction {
  const { Ajv } = createRequire(import.meta.url)('ajv') as typeof AjvModule;
  return new Ajv(schemaOptions(file)).compile(readSchema(file));
}

export function readSchema(file: string): object {
  // The same relative path from src/ and from dist/.
  return JSON.parse(readFileSync(new URL(`../../wrangler-free-config/${file}`, import.meta.url), 'utf8')) as object;
}

/** What the host's and functions' settings are checked against: the message is chosen among all errors. */
const settings: ReadonlySet<string> = new Set(['host.schema.json', 'function.schema.json']);

export function schemaOptions(file: string): Options {
  return {
    verbose: true,
    allowUnionTypes: true,
    // Elsewhere the first error: a graph of thousands of operators that all lack a field would make as many.
    allErrors: settings.has(file),
    // A minimum stands beside the definition of a duration or a size, which has the type.
    strictTypes: false,
    // The last element of an edge may be left out.
    strictTuples: false,
    // What config-options.ts reads of the host's schema.
    keywords: ['x-kind', 'x-group', 'x-allowed', 'x-short', 'x-secret', 'x-flag'],
  };
}
