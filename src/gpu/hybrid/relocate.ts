/**
 * Makes a program of an unrolled graph read the weights of the published function. All plans of a function then share
 * one layout, and a change of plan moves no weights.
 */
import { getOrMake } from '../../tools/index.ts';
import { readRange } from '../program/files.ts';
import type { Launch, Operand, Program, ProgramWeight, WeightLayout } from '../program/types.ts';
import { operandsOf, withOperands } from '../work.ts';
import { GpuError } from '../types.ts';

interface Place {
  readonly weight: number;
  readonly byteOffset: number;
}

/** @throws GpuError 'invalid' when the program reads a weight that the layout does not have */
export function relocate(program: Program, layout: WeightLayout): Program {
  const places = new Map<number, Place>();
  const placeOf = (weight: number): Place =>
    getOrMake(places, weight, () => find(program.layout.weights[weight]!, layout));
  const moved = (operand: Operand): Operand => {
    if (operand.space !== 'weight') return operand;
    const { weight, byteOffset } = placeOf(operand.weight);
    return { space: 'weight', weight, byteOffset: byteOffset + operand.byteOffset };
  };
  let layer = 0;
  const launches = program.launches.map((launch): Launch => {
    const work = withOperands(launch, moved);
    const reads = new Set<number>();
    for (const { operand } of operandsOf(work)) {
      if (operand.space === 'weight') reads.add(layout.weights[operand.weight]!.layer);
    }
    layer = Math.max(layer, ...reads);
    return { ...work, layer, label: launch.label, reads: [...reads].sort((a, b) => a - b) };
  });
  return { ...program, layout, launches };
}

/** The weight of the same name, or the part of one with the same bytes: one direction of a recurrent layer. */
function find(wanted: ProgramWeight, { weights }: WeightLayout): Place {
  const same = weights.findIndex(
    ({ name, bytes, datatype }) => name === wanted.name && bytes === wanted.bytes && datatype === wanted.datatype,
  );
  if (same >= 0) return { weight: same, byteOffset: 0 };
  const content = stored(wanted, 0, wanted.bytes);
  for (const [weight, candidate] of weights.entries()) {
    if (candidate.datatype !== wanted.datatype) continue;
    if (!wanted.name.startsWith(candidate.name) || candidate.bytes <= wanted.bytes) continue;
    for (let byteOffset = 0; byteOffset + wanted.bytes <= candidate.bytes; byteOffset += wanted.bytes) {
      if (content.equals(stored(candidate, byteOffset, wanted.bytes))) return { weight, byteOffset };
    }
  }
  throw new GpuError('invalid', `the unrolled graph has a weight '${wanted.name}' that the function does not have`);
}

/** Part of a weight, in its bytes on disk. */
function stored({ source }: ProgramWeight, byteOffset: number, count: number): Buffer {
  return readRange(source.path, source.byteOffset + byteOffset, count);
}
