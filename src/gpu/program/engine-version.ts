/** The engine's version. After a change of its code, cached programs and verdicts of checks are not used any more. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

let known: string | undefined;

/** A hash of the files of src/gpu, src/onnx and src/operators. */
export function engineVersion(): string {
  if (known !== undefined) return known;
  const hash = createHash('sha256');
  const engine = dirname(dirname(fileURLToPath(import.meta.url)));
  const source = dirname(engine);
  for (const folder of [engine, join(source, 'onnx'), join(source, 'operators')]) {
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    for (const file of files.filter((name) => /\.(ts|js|cu)$/.test(name) && !/\.(test|d)\.ts$/.test(name)).sort()) {
      hash.update(file).update(readFileSync(join(folder, file)));
    }
  }
  known = hash.digest('hex');
  return known;
}
