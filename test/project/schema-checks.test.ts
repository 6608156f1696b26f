/** The checks that the build generates from the schemas find what ajv finds with the schemas themselves. */
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { ValidateFunction } from 'ajv';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { compileSchema, readSchema } from '../../src/hardware/compile-schema.ts';

interface Schema {
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly items?: Schema | readonly Schema[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly $ref?: string;
  readonly definitions?: Readonly<Record<string, Schema>>;
}

const root = join(import.meta.dirname, '..', '..');
const requireBuilt = createRequire(join(root, 'dist', 'index.js'));
const schemas = readdirSync(join(root, 'wrangler-free-config'), { recursive: true, encoding: 'utf8' }).filter((name) =>
  name.endsWith('.schema.json'),
);

/** Documents that mostly fit a schema; here and there is a wrong value. */
function documents(schema: Schema): fc.Arbitrary<unknown> {
  const depthIdentifier = fc.createDepthIdentifier();
  const wrong = { arbitrary: fc.jsonValue({ maxDepth: 1 }), weight: 1 };
  const { whole } = fc.letrec((tie) => {
    const near = (part: Schema): fc.Arbitrary<unknown> =>
      fc.oneof({ maxDepth: 10, depthSize: 'max', depthIdentifier }, wrong, { arbitrary: right(part), weight: 60 });
    const right = ({ $ref, const: only, enum: choices, anyOf, ...part }: Schema): fc.Arbitrary<unknown> => {
      if ($ref !== undefined) return tie($ref);
      if (only !== undefined) return fc.constant(only);
      if (choices !== undefined) return fc.constantFrom(...choices);
      if (anyOf !== undefined) return fc.oneof(...anyOf.map((form) => near({ ...part, ...form })));
      return fc.oneof(...[part.type ?? 'null'].flat().map((type) => ofType(type, part, near)));
    };
    const { definitions = {} } = schema;
    const named = Object.entries(definitions).map(([name, part]) => [`#/definitions/${name}`, near(part)] as const);
    return { ...Object.fromEntries(named), whole: near(schema) };
  });
  return whole;
}

function ofType(type: string, part: Schema, near: (part: Schema) => fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  const { items = {}, properties = {}, required = [], minItems = 0, minimum = 0, maximum = 1e9 } = part;
  switch (type) {
    case 'object': {
      const fields = Object.fromEntries(Object.entries(properties).map(([name, field]) => [name, near(field)]));
      const unknown = fc.option(fc.record({ other: fc.jsonValue({ maxDepth: 0 }) }), { nil: {}, freq: 40 });
      const known = fc.record(fields, { requiredKeys: [...required] });
      return fc.tuple(unknown, known).map(([some, others]) => Object.assign(some, others));
    }
    case 'array':
      return 'length' in items
        ? fc.tuple(...items.map(near))
        : fc.array(near(items), { minLength: minItems, maxLength: minItems + 1 });
    case 'integer':
      return fc.integer({ min: minimum, max: maximum });
    case 'number':
      return fc.double({ min: minimum, max: maximum, noNaN: true });
    case 'string':
      return fc.constantFrom('250ms', '64MiB', 'off', 'auto', 'a-name');
    default:
      return fc.constantFrom(true, null);
  }
}

test.each(schemas)('the generated check of %s finds the errors that ajv finds', (file) => {
  const byAjv = compileSchema(file);
  const built = requireBuilt(`./schemas/${file.replace(/json$/, 'cjs')}`) as ValidateFunction;
  const schema = readSchema(file) as Schema;
  fc.assert(
    fc.property(documents(schema), (json) => {
      expect(built(json)).toBe(byAjv(json));
      expect(built.errors).toEqual(byAjv.errors);
    }),
  );
});

test('no code of dist/ loads ajv, which takes as long as half of a command', () => {
  const code = readdirSync(join(root, 'dist'), { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.js'),
  );
  expect(code).toContain(join('cli', 'main.js'));
  for (const file of code) expect(readFileSync(join(root, 'dist', file), 'utf8'), file).not.toMatch(/["']ajv["']/);
});
