// The checks of the schemas in wrangler-free-config/, as code: a process of the product neither loads ajv nor compiles
// a schema.
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Ajv } from 'ajv';
import standalone from 'ajv/dist/standalone/index.js';
import { importSource } from './import-source.mjs';

/** The source in whose place a process of dist/ loads the generated checks. */
export const compileSchemaFile = join('hardware', 'compile-schema.ts');
const checks = 'schemas';

/** The replacement of {@link compileSchemaFile}. Each check is a file, which is read at its first use. */
export const loadCheck = `
import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
export const compileSchema = (file) => require(\`../${checks}/\${file.replace(/json$/, 'cjs')}\`);
`;

/**
 * @param {string} root the project's folder
 * @param {string} outdir
 */
export async function writeSchemaChecks(root, outdir) {
  const { readSchema, schemaOptions } = await importSource(join(root, 'src', compileSchemaFile));
  const files = readdirSync(join(root, 'wrangler-free-config'), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.schema.json'))) {
    const ajv = new Ajv({ ...schemaOptions(file), code: { source: true } });
    const path = join(outdir, checks, file.replace(/json$/, 'cjs'));
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, standalone.default(ajv, ajv.compile(readSchema(file))));
  }
}
