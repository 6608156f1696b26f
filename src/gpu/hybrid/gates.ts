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

/**
 * What a program waits for although it can only come of what the program has not made yet; undefined when it can run to
 * its end.
 */
export function deadlockOf(
  gates: Gates,
  launchCount: number,
  cpu: readonly { readonly inputs: readonly string[]; readonly outputs: readonly string[] }[],
): string | undefined {
  const made = new Set(cpu.flatMap(({ outputs }) => outputs));
  for (const list of gates.after.values()) for (const { name } of list) made.add(name);
  const there = new Set<string>();
  const waiting = new Set(cpu);
  const settle = (): void => {
    for (let moved = true; moved;) {
      moved = false;
      for (const part of waiting) {
        if (!part.inputs.every((value) => !made.has(value) || there.has(value))) continue;
        waiting.delete(part);
        for (const value of part.outputs) there.add(value);
        moved = true;
      }
    }
  };
  for (let launch = 0; launch < launchCount; launch++) {
    const needed = gates.before.get(launch);
    if (needed !== undefined) {
      settle();
      const missing = needed.find(({ name }) => !there.has(name));
      if (missing !== undefined) return missing.name;
    }
    for (const { name } of gates.after.get(launch) ?? []) there.add(name);
  }
  return undefined;
}
