/**
 * All steps of a recurrent layer in one kernel. A block computes one item of the batch and needs nothing of other
 * blocks, so a barrier inside the block separates steps. The cells emit a step in the same way for both forms; here its
 * parts are collected as text.
 */
import { elementsOf, forEachElement, type Use, type Uses } from '../common/elements.ts';
import type { Emitter } from '../types.ts';

/**
 * Limit for the recurrent weights of one direction for each launch that a step would take else. A block reads them in each
 * step: on an H200 a MiB takes 16 us, and two launches of a graph take 6, launched one by one 15.
 */
const bytesPerLaunchMax = 2 ** 18;
/** Limit for the weights times the batch: reads must hit the cache. */
const readBytesMax = 2 ** 26;

/** @param launches of a step, if each step has its own */
export function isOneKernel(weightBytes: number, batch: number, steps: number, launches: number): boolean {
  return steps > 1 && weightBytes <= launches * bytesPerLaunchMax && weightBytes * batch <= readBytesMax;
}

export interface SequenceSize {
  readonly batch: number;
  readonly hidden: number;
  readonly steps: number;
}

export class RecurrentSequence {
  readonly #emitter: Emitter;
  readonly #size: SequenceSize;
  readonly #uses = new Map<string, Use>();
  readonly #lines: string[] = [];

  constructor(emitter: Emitter, size: SequenceSize) {
    this.#emitter = emitter;
    this.#size = size;
  }

  /**
   * The state of the block's item times recurrent weights.
   *
   * @param weights [hidden, all rows], transposed, so that neighbouring threads read neighbouring elements
   */
  product(
    weights: Use,
    { rows, first, allRows }: { readonly rows: number; readonly first: number; readonly allRows: number },
    from: { readonly name: string; readonly use: Use },
    to: { readonly name: string; readonly use: Use },
  ): void {
    const { hidden } = this.#size;
    this.#add('weights', weights);
    this.#add(from.name, from.use);
    this.#add(to.name, { ...to.use, access: 'read-write' });
    this.#lines.push(
      `for (u32 row = threadIdx.x; row < ${rows}u; row += blockDim.x) {`,
      '  float sum = 0.0f;',
      `  for (u32 k = 0; k < ${hidden}u; k++)`,
      `    sum += ${elementsOf('weights', weights).at(`k * ${allRows}u + ${first}u + row`)} * ${elementsOf(from.name, from.use).at(`item * ${hidden}u + k`)};`,
      `  ${to.name}[item * ${rows}u + row] = sum;`,
      '}',
      '__syncthreads();',
    );
  }

  /** Runs `body` for each unit of the item. `i`: the unit's index in the batch. `continue` skips the unit. */
  units(uses: Uses, body: readonly string[]): void {
    const { hidden } = this.#size;
    for (const [name, use] of Object.entries(uses)) if (use !== undefined) this.#add(name, use);
    this.#lines.push(
      `for (u32 unit = threadIdx.x; unit < ${hidden}u; unit += blockDim.x) {`,
      `  const u32 i = item * ${hidden}u + unit;`,
      ...body.filter((line) => line !== ''),
      '}',
      '__syncthreads();',
    );
  }

  emit(hint: string): void {
    const { batch, hidden, steps } = this.#size;
    const threads = Math.min(512, Math.ceil(Math.max(hidden, 64) / 32) * 32 * 2);
    const lines = [
      `const u32 item = i / ${threads}u;`,
      `for (i32 step = 0; step < ${steps}; step++) {`,
      ...this.#lines,
      '}',
    ];
    forEachElement(this.#emitter, hint, batch * threads, Object.fromEntries(this.#uses), () => lines, { threads });
  }

  /** A tensor that one part of a step reads and another one writes is read and written by the kernel. */
  #add(name: string, use: Use): void {
    const known = this.#uses.get(name);
    const isAlike = known === undefined || known.access === use.access;
    this.#uses.set(name, isAlike ? use : { ...use, access: 'read-write' });
  }
}
