/**
 * Kernels that are written by hand, as `.cu` files beside the prelude, made special for one node by preprocessor
 * definitions.
 */
import { readFileSync } from 'node:fs';
import { getOrMake } from '../../../tools/index.ts';

const texts = new Map<string, string>();

function textOf(file: string): string {
  return getOrMake(texts, file, () => readFileSync(new URL(`../../kernels/${file}.cu`, import.meta.url), 'utf8'));
}

/** What a kernel file leaves open: numbers, types, and expressions with parameters ('LOAD(x)'). */
export type Definitions = Readonly<Record<string, string | number>>;

/**
 * The source of one kernel: `src/gpu/kernels/<file>.cu` between the definitions that it asks for. They are taken back
 * at its end, since all kernels of a program are one translation unit.
 */
export function kernelFrom(file: string, definitions: Definitions): string {
  const entries = Object.entries(definitions);
  const defined = entries.map(([name, value]) => `#define ${name} ${value}`);
  const undefined_ = entries.map(([name]) => `#undef ${name.replace(/\(.*/, '')}`);
  return [...defined, textOf(file).trim(), ...undefined_, ''].join('\n');
}
