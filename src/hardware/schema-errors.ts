import type { ErrorObject, ValidateFunction } from 'ajv';
import { compileSchema } from './compile-schema.ts';

/**
 * What does not fit a schema in `wrangler-free-config/`. The check is made at its first use, so importing it reads no
 * file.
 */
export function schemaErrors(file: string): (json: unknown) => readonly ErrorObject[] {
  let validate: ValidateFunction | undefined;
  return (json) => {
    validate ??= compileSchema(file);
    return validate(json) ? [] : (validate.errors ?? []);
  };
}
