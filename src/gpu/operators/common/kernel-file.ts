/** Hand-written kernels: `.cu` files in src/gpu/kernels, specialised for a node by preprocessor definitions. */
import { readFileSync } from 'node:fs';
import { getOrMake } from '../../../tools/index.ts';

const texts = new Map<string, string>();

function textOf(file: string): string {
  return getOrMake(texts, file, () => readFileSync(new URL(`../../kernels/${file}.cu`, import.meta.url), 'utf8'));
}

/** The names that a kernel file leaves open: numbers, types, and macros with parameters ('LOAD(x)'). */
export type Definitions = Readonly<Record<string, string | number>>;

/**
 * The source of `src/gpu/kernels/<file>.cu` with its definitions. They are undefined at its end, since all kernels of a
 * program are one translation unit.
 */
export function kernelFrom(file: string, definitions: Definitions): string {
  const entries = Object.entries(definitions);
  const defined = entries.map(([name, value]) => `#define ${name} ${value}`);
  const undefined_ = entries.map(([name]) => `#undef ${name.replace(/\(.*/, '')}`);
  return [...defined, textOf(file).trim(), ...undefined_, ''].join('\n');
}
