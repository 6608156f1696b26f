/**
 * Makes a program from recorded launches: drops launches that no output needs, and gives buffers places in the arena.
 */
import { elementBytes, elementCount } from '../../tensor/index.ts';
import type { Buffer } from '../operators/types.ts';
import { alignUp, planArena, type ArenaItem } from './arena.ts';
import type { FunctionBase } from './base.ts';
import { typeOfWeight, type Emission } from './emission.ts';
import { narrowedSources } from './narrowed.ts';
import type { PreparedGraph } from './prepared.ts';
import type { DraftLaunch } from './recorder.ts';
import type { Launch, Operand, Program, ProgramTensor, ProgramWeight, WeightLayout } from './types.ts';
import type { ProgramSettings } from '../types.ts';
import { operandsOf, withOperands } from '../work.ts';

/** A function's weights by layers, the same for all input shapes. */
export function layoutOf(base: FunctionBase, settings: ProgramSettings): WeightLayout {
  const bytes = base.layers.map(() => 0);
  const narrowed = narrowedSources(base, settings);
  const weights = base.weights.map((weight): ProgramWeight => {
    const { narrowable: _, ...rest } = weight;
    const datatype = typeOfWeight(weight, settings);
    const size = elementCount(weight.shape) * elementBytes[datatype];
    const byteOffset = bytes[weight.layer]!;
    bytes[weight.layer] = alignUp(byteOffset + size);
    const source = narrowed.get(weight.name) ?? weight.source;
    return { ...rest, datatype, bytes: size, byteOffset, source };
  });
  return {
    layers: base.layers.map(({ name, kind }, index) => ({ index, name, kind, bytes: bytes[index]! })),
    weights,
    bytes: bytes.reduce((sum, size) => sum + size, 0),
  };
}

/** Launches that an output depends on. */
export function livingLaunches(launches: readonly DraftLaunch[], outputs: ReadonlySet<number>): DraftLaunch[] {
  const needed = new Set(outputs);
  const living: DraftLaunch[] = [];
  for (const launch of launches.toReversed()) {
    const uses = operandsOf(launch);
    if (!uses.some(({ operand, writtenBytes }) => writtenBytes > 0 && needed.has(operand.id))) continue;
    for (const { operand, reads } of uses) if (reads) needed.add(operand.id);
    living.push(launch);
  }
  return living.reverse();
}

interface Lifetime {
  first: number;
  last: number;
}

/**
 * The first and last use of each activation, by launch. Inputs keep their bytes for the whole run, outputs to its end.
 */
function lifetimes(
  launches: readonly DraftLaunch[],
  inputs: readonly number[],
  outputs: readonly number[],
): Map<number, Lifetime> {
  const lives = new Map<number, Lifetime>();
  const touch = (id: number, step: number): void => {
    const life = lives.get(id);
    if (life === undefined) lives.set(id, { first: step, last: step });
    else {
      life.first = Math.min(life.first, step);
      life.last = Math.max(life.last, step);
    }
  };
  for (const id of inputs) {
    touch(id, -1);
    touch(id, launches.length);
  }
  for (const id of outputs) touch(id, launches.length);
  for (const [step, launch] of launches.entries()) {
    for (const { operand } of operandsOf(launch)) touch(operand.id, step);
  }
  return lives;
}

/** In-place results, each with the storage whose bytes it takes over: an operand that no later launch uses. */
function inPlaceUnions(
  emission: Emission,
  launches: readonly DraftLaunch[],
  lives: ReadonlyMap<number, Lifetime>,
  fixed: ReadonlySet<number>,
): Map<number, number> {
  const owner = new Map<number, number>();
  for (const [step, launch] of launches.entries()) {
    if (launch.inPlaceOf.length === 0) continue;
    const written = operandsOf(launch).find(({ writtenBytes }) => writtenBytes > 0)?.operand;
    if (written === undefined || lives.get(written.id)?.first !== step || owner.has(written.id)) continue;
    const storage = emission.storages.of(written);
    if (storage.kind !== 'activation' || fixed.has(written.id)) continue;
    const taken = launch.inPlaceOf.find((buffer) => {
      const other = emission.storages.of(buffer);
      return (
        other.kind === 'activation' &&
        !fixed.has(buffer.id) &&
        buffer.id !== written.id &&
        other.bytes === storage.bytes &&
        buffer.byteOffset === 0 &&
        lives.get(buffer.id)?.last === step
      );
    });
    if (taken !== undefined) owner.set(written.id, taken.id);
  }
  return owner;
}

function placeActivations(
  emission: Emission,
  launches: readonly DraftLaunch[],
  inputs: readonly number[],
  outputs: readonly number[],
) {
  const lives = lifetimes(launches, inputs, outputs);
  const owner = inPlaceUnions(emission, launches, lives, new Set([...inputs, ...outputs]));
  const root = (id: number): number => {
    let at = id;
    for (let next = owner.get(at); next !== undefined; next = owner.get(at)) at = next;
    return at;
  };
  const items = new Map<number, { bytes: number; first: number; last: number }>();
  for (const [id, { first, last }] of lives) {
    const storage = emission.storages.of({ id });
    if (storage.kind !== 'activation') continue;
    const at = root(id);
    const item = items.get(at);
    if (item === undefined) items.set(at, { bytes: storage.bytes, first, last });
    else {
      item.first = Math.min(item.first, first);
      item.last = Math.max(item.last, last);
    }
  }
  const plan = planArena([...items.values()] satisfies ArenaItem[]);
  const offsetOf = new Map([...items.keys()].map((id, index) => [id, plan.byteOffsets[index]!]));
  const byteOffsets = new Map<number, number>();
  for (const id of lives.keys()) {
    const offset = offsetOf.get(root(id));
    if (offset !== undefined) byteOffsets.set(id, offset);
  }
  return { byteOffsets, bytes: plan.bytes };
}

/** Packs the constants that launches read into one block. */
function packConstants(emission: Emission, launches: readonly DraftLaunch[]) {
  const byteOffsets = new Map<number, number>();
  const parts: { at: number; data: Uint8Array }[] = [];
  let bytes = 0;
  for (const launch of launches) {
    for (const { operand: buffer } of operandsOf(launch)) {
      const storage = emission.storages.of(buffer);
      if (storage.kind !== 'constant' || byteOffsets.has(buffer.id)) continue;
      byteOffsets.set(buffer.id, bytes);
      parts.push({ at: bytes, data: storage.data });
      bytes = alignUp(bytes + storage.bytes);
    }
  }
  const data = new Uint8Array(bytes);
  for (const { at, data: part } of parts) data.set(part, at);
  return { byteOffsets, data };
}

/** @param key see {@link Program.key} */
export function assemble(prepared: PreparedGraph, emission: Emission, key: string): Program {
  const { base } = prepared;
  const layout = layoutOf(base, emission.settings);
  const inputIds = prepared.inputs.map((name) => emission.buffer(name).id);
  const outputIds = prepared.outputs.map((name) => emission.buffer(name).id);
  const launches = livingLaunches(emission.recorder.launches, new Set(outputIds));
  const places = placeActivations(emission, launches, inputIds, outputIds);
  const constants = packConstants(emission, launches);

  const operand = ({ id, byteOffset }: Buffer): Operand => {
    const storage = emission.storages.of({ id });
    switch (storage.kind) {
      case 'weight':
        return { space: 'weight', weight: storage.weight, byteOffset };
      case 'constant':
        return { space: 'constant', byteOffset: constants.byteOffsets.get(id)! + byteOffset };
      case 'activation':
        return { space: 'arena', byteOffset: places.byteOffsets.get(id)! + byteOffset };
    }
  };
  const finished = launches.map(({ inPlaceOf: _, layer, label, ...draft }): Launch => {
    const reads = new Set<number>();
    for (const { operand: buffer } of operandsOf(draft)) {
      const storage = emission.storages.of(buffer);
      if (storage.kind === 'weight') reads.add(base.weights[storage.weight]!.layer);
    }
    return { ...withOperands(draft, operand), layer, label, reads: [...reads].sort((a, b) => a - b) };
  });
  const tensors = (names: readonly string[]): ProgramTensor[] =>
    names.map((name) => {
      const { id, byteOffset, bytes } = emission.buffer(name);
      const { datatype, shape } = prepared.values.get(name)!;
      return { name, datatype, shape, byteOffset: (places.byteOffsets.get(id) ?? 0) + byteOffset, bytes };
    });
  const launched = new Set(launches.flatMap((launch) => (launch.kind === 'kernel' ? [launch.kernel] : [])));
  const workspaces = launches.map((launch) => (launch.kind === 'matmul' ? launch.description.workspaceBytesMax : 0));
  return {
    key,
    layout,
    inputs: tensors(prepared.inputs),
    outputs: tensors(prepared.outputs),
    arenaBytes: places.bytes,
    workspaceBytes: workspaces.reduce((most, bytes) => Math.max(most, bytes), 0),
    constants: constants.data,
    source: emission.recorder.source(launched),
    launches: finished,
  };
}
