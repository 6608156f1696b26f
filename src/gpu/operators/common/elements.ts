/** Kernels in which each thread makes one element, with their tensors by name. */
import { elementOf, plain, type Element } from '../../../operators/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import type { Buffer, Emitter } from '../types.ts';
import { forEachIndex, wordType, type IndexOptions, type Parameter } from './launching.ts';

/** Stored elements: a {@link Value}, or part of one. */
export interface Stored {
  readonly buffer: Buffer;
  /** The type of its bytes. */
  readonly storedType: DataType;
}

/** A tensor that a kernel uses; without `access` it is read. */
export interface Use extends Stored {
  readonly access?: 'write' | 'read-write';
  /** Elements are only moved, so the kernel uses words of their width. */
  readonly isMoved?: boolean;
}

export const written = ({ buffer, storedType }: Stored): Use => ({ buffer, storedType, access: 'write' });
export const changed = ({ buffer, storedType }: Stored): Use => ({ buffer, storedType, access: 'read-write' });
export const asBits = (use: Use): Use => ({ ...use, isMoved: true });

/** C expressions and statements over a tensor's elements. */
export interface Elements {
  /** C type in memory, and in expressions. */
  readonly stored: string;
  readonly computed: string;
  /** The element at an index. */
  readonly at: (index: string) => string;
  /** Converts an element that was read through another pointer. */
  readonly load: (stored: string) => string;
  readonly set: (index: string, value: string) => string;
}

const elementFor = ({ storedType, isMoved }: Use): Element =>
  isMoved === true ? plain(wordType(elementBytes[storedType])) : elementOf(storedType);

export function elementsOf(name: string, use: Use): Elements {
  const { stored, computed, load, store } = elementFor(use);
  return {
    stored,
    computed,
    load,
    at: (index) => load(`${name}[${index}]`),
    set: (index, value) => `${name}[${index}] = ${store(value)};`,
  };
}

/** Parameters of all uses that are not undefined. */
export const parametersOf = (uses: Uses): Parameter[] =>
  Object.entries(uses).flatMap(([name, use]) =>
    use === undefined ? [] : [{ name, type: elementFor(use).stored, buffer: use.buffer, access: use.access ?? 'read' }],
  );

export type Uses = Readonly<Record<string, Use | undefined>>;
export type ElementsOf<Given extends Uses> = {
  readonly [Name in keyof Given]: undefined extends Given[Name] ? Elements | undefined : Elements;
};

export const allElementsOf = <Given extends Uses>(uses: Given): ElementsOf<Given> =>
  Object.fromEntries(
    Object.entries(uses).map(([name, use]) => [name, use && elementsOf(name, use)]),
  ) as ElementsOf<Given>;

/**
 * Adds and launches a kernel that runs `body` for each `i` below `count`. Undefined tensors are no parameters. Empty
 * lines of the body are dropped.
 */
export function forEachElement<Given extends Uses>(
  emitter: Emitter,
  hint: string,
  count: number,
  tensors: Given,
  body: (elements: ElementsOf<Given>) => string | readonly string[],
  { others = [], ...options }: IndexOptions & { readonly others?: readonly Parameter[] | undefined } = {},
): void {
  if (count === 0) return;
  const lines = [body(allElementsOf(tensors))].flat();
  forEachIndex(emitter, hint, count, [...parametersOf(tensors), ...others], lines, options);
}
