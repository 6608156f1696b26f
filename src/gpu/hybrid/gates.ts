/** Where in a program tensors that cross come in and go out, told from the bytes that its launches touch. */
import { append } from '../../tools/index.ts';
import type { Operand, Program, ProgramTensor } from '../program/types.ts';
import { operandsOf, type OperandUse } from '../program/work.ts';

export interface Gates {
  /** By launch: what must have arrived before it. */
  readonly before: ReadonlyMap<number, readonly ProgramTensor[]>;
  /** By launch: what is complete after it. */
  readonly after: ReadonlyMap<number, readonly ProgramTensor[]>;
}

const isIn = ({ byteOffset, bytes }: ProgramTensor, { operand }: OperandUse<Operand>): boolean =>
  operand.space === 'arena' && operand.byteOffset >= byteOffset && operand.byteOffset < byteOffset + bytes;

/**
 * Inputs have their bytes for the whole run, and outputs theirs from their first write to the end: so the first launch
 * that reads in an input's bytes is the first that needs it, and the last that writes in an output's bytes completes
 * it.
 *
 * @param arriving inputs of the program that come while it runs
 * @param leaving outputs of the program that are wanted while it runs
 */
export function gatesOf(program: Program, arriving: ReadonlySet<string>, leaving: ReadonlySet<string>): Gates {
  const before = new Map<number, ProgramTensor[]>();
  const after = new Map<number, ProgramTensor[]>();
  const touched = program.launches.map((launch) => operandsOf(launch));
  for (const tensor of program.inputs) {
    if (!arriving.has(tensor.name) || tensor.bytes === 0) continue;
    const first = touched.findIndex((list) => list.some((touch) => touch.reads && isIn(tensor, touch)));
    if (first >= 0) append(before, first, tensor);
  }
  for (const tensor of program.outputs) {
    if (!leaving.has(tensor.name) || tensor.bytes === 0) continue;
    const last = touched.findLastIndex((list) => list.some((touch) => touch.writtenBytes > 0 && isIn(tensor, touch)));
    if (last < 0) throw new Error(`no launch of program ${program.key} makes '${tensor.name}'`);
    append(after, last, tensor);
  }
  return { before, after };
}

/** What a core makes of what it takes. */
interface CpuWork {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

/**
 * Follows what the GPU makes in its order. The cores' parts begin when everything that they take is there, and cores
 * take whatever is ready, so that they add nothing to who waits for whom.
 */
export class Arrivals {
  readonly #made: ReadonlySet<string>;
  readonly #there = new Set<string>();
  /** Parts that have not begun. */
  readonly waiting: Set<CpuWork>;

  /** @param made all that comes from the GPU or a core; the rest is there from the beginning */
  constructor(made: Iterable<string>, cpu: readonly CpuWork[]) {
    this.#made = new Set(made);
    this.waiting = new Set(cpu);
  }

  readonly isThere = (value: string): boolean => !this.#made.has(value) || this.#there.has(value);

  come(values: readonly string[]): void {
    for (const value of values) this.#there.add(value);
  }

  /** Has all parts run that can. */
  settle(): void {
    for (let moved = true; moved;) {
      const ready = [...this.waiting].filter(({ inputs }) => inputs.every(this.isThere));
      for (const part of ready) {
        this.waiting.delete(part);
        this.come(part.outputs);
      }
      moved = ready.length > 0;
    }
  }

  /** The first of the values that does not come, whatever the cores do. */
  missing(values: readonly string[]): string | undefined {
    if (!values.every(this.isThere)) this.settle();
    return values.find((value) => !this.isThere(value));
  }
}

const namesOf = (tensors: readonly ProgramTensor[] = []): string[] => tensors.map(({ name }) => name);

/**
 * What a program waits for although it can only come of what the program has not made yet; undefined when it can run to
 * its end.
 */
export function deadlockOf(gates: Gates, launchCount: number, cpu: readonly CpuWork[]): string | undefined {
  const made = [...cpu.flatMap(({ outputs }) => outputs), ...namesOf([...gates.after.values()].flat())];
  const gated = namesOf([...gates.before.values()].flat());
  const arrivals = new Arrivals([...made, ...gated], cpu);
  for (let launch = 0; launch < launchCount; launch++) {
    const missing = arrivals.missing(namesOf(gates.before.get(launch)));
    if (missing !== undefined) return missing;
    arrivals.come(namesOf(gates.after.get(launch)));
  }
  return undefined;
}
