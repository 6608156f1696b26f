/** The launches before which a crossing tensor must arrive, and after which it is complete. */
import { append } from '../../tools/index.ts';
import type { Operand, Program, ProgramTensor } from '../program/types.ts';
import { operandsOf, type OperandUse } from '../work.ts';

export interface Gates {
  /** By launch: tensors that must have arrived before it. */
  readonly before: ReadonlyMap<number, readonly ProgramTensor[]>;
  /** By launch: tensors that are complete after it. */
  readonly after: ReadonlyMap<number, readonly ProgramTensor[]>;
}

const isIn = ({ byteOffset, bytes }: ProgramTensor, { operand }: OperandUse<Operand>): boolean =>
  operand.space === 'arena' && operand.byteOffset >= byteOffset && operand.byteOffset < byteOffset + bytes;

/**
 * Finds gates by the bytes that launches touch. No other value uses the bytes of an input during the run, nor those of
 * an output after its first write. So the first launch that reads an input's bytes needs it, and the last one that
 * writes an output's bytes completes it.
 *
 * @param arriving inputs of the program that arrive while it runs
 * @param leaving outputs of the program that cores read while it runs
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

/** The values that a core's call reads and makes. */
interface CpuWork {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

/**
 * Simulates a run to find deadlocks: the caller reports the GPU's values in order, and each part of the CPU runs once
 * its inputs are there. Cores run whichever part is ready, so they cannot add to a deadlock.
 */
export class Arrivals {
  readonly #made: ReadonlySet<string>;
  readonly #there = new Set<string>();
  /** Parts that have not begun. */
  readonly waiting: Set<CpuWork>;

  /** @param made values that the GPU or a core makes; all others are there from the beginning */
  constructor(made: Iterable<string>, cpu: readonly CpuWork[]) {
    this.#made = new Set(made);
    this.waiting = new Set(cpu);
  }

  readonly isThere = (value: string): boolean => !this.#made.has(value) || this.#there.has(value);

  come(values: readonly string[]): void {
    for (const value of values) this.#there.add(value);
  }

  /** Runs all parts that can run. */
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

  /** The first of the values that is not there after all parts that can run have run. */
  missing(values: readonly string[]): string | undefined {
    if (!values.every(this.isThere)) this.settle();
    return values.find((value) => !this.isThere(value));
  }
}

const namesOf = (tensors: readonly ProgramTensor[] = []): string[] => tensors.map(({ name }) => name);

/**
 * A value that the program waits for, and that depends on a later launch of the program; undefined if there is no
 * deadlock.
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
