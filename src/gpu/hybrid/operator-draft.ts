/**
 * A function's operators before they are timed: names, bytes, edges, and which of them the GPU can run. Plain data,
 * which a message between threads can hold.
 */
import { append } from '../../tools/index.ts';
import { dataTypeOf, Graph } from '../../onnx/index.ts';
import type { OperatorBytes, OperatorEdge } from '../../profile/index.ts';
import { elementBytes, elementCount } from '../../tensor/index.ts';
import type { Operator } from '../operators/types.ts';
import { layoutOf } from '../program/assemble.ts';
import { writeNarrowed } from '../program/narrowed.ts';
import { compileProgram } from '../program/compile.ts';
import { ProgramError } from '../program/error.ts';
import { shapeIn } from '../program/input-shapes.ts';
import { bytesOf, operatorName } from '../program/prepare.ts';
import { livingNodes, type PreparedGraph, type PreparedNode } from '../program/prepared.ts';
import type { Launch, Program, ProgramTensor, WeightLayout } from '../program/types.ts';
import { operandsOf } from '../work.ts';
import { GpuError, type ProgramSettings } from '../types.ts';
import { Groups, plannedOperators, type PlannedOperator } from './planned-operators.ts';
import { relocate } from './relocate.ts';
import { partOfGraph, writePrepared } from './submodel.ts';

export interface DraftedNode {
  readonly name: string;
  /** The label of its launches in the program without fusion. */
  readonly label: string;
}

export interface DraftedOperator {
  readonly name: string;
  /** Its type, with the domain unless that is ONNX's: 'MatMul'. For a group the types of its nodes, joined by ' + '. */
  readonly operator: string;
  /** More than one if values between them cannot cross to another processor. */
  readonly nodes: readonly DraftedNode[];
  /** Why only the CPU can run it; null if the GPU can. */
  readonly obstacle: string | null;
  readonly bytes: OperatorBytes;
  /** The group of layers that its GPU launches read weights of. Operators with the same group share its weights. */
  readonly shares?: string;
}

export type DraftedInput = Omit<ProgramTensor, 'byteOffset'>;

export type OperatorDraft = Awaited<ReturnType<typeof draftOperators>>;

export interface DraftOptions {
  readonly operators: readonly Operator[];
  readonly settings: ProgramSettings;
  readonly cacheFolder: string;
  /** The function's layout, if the prepared graph is an unrolled form of it. */
  readonly layout?: WeightLayout;
}

/** @throws ProgramError, GpuError 'invalid' for an input of unknown shape or type */
export async function draftOperators(
  prepared: PreparedGraph,
  { operators, settings, cacheFolder, layout = layoutOf(prepared.base, settings) }: DraftOptions,
) {
  await writeNarrowed(prepared.base, settings);
  const planned = plannedOperators(prepared);
  const living = planned.flatMap(({ nodes }) => nodes);
  const share = gpuShareOf(prepared, planned, operators, settings);
  const programs = share.programs && {
    fused: relocate(share.programs.fused, layout),
    single: relocate(share.programs.single, layout),
  };
  const launches = launchesByOperator(planned, programs?.single);
  const groups = groupsOf(launches, layout);
  // The crossing values are computed on the CPU, so that the GPU's share is timed with real values.
  const leading = livingNodes({ ...prepared, nodes: living, outputs: share.arriving });
  const { modelPath } = await writePrepared(prepared, living, prepared.outputs, cacheFolder);
  return {
    /** In an order in which they can run. */
    operators: planned.map((operator) => describe(prepared, operator, share.obstacles, launches, groups)),
    edges: edgesOf(prepared, planned),
    /** The function's weights, as the GPU keeps them. */
    layout,
    /** The function's inputs. */
    inputs: inputsOf(prepared),
    /** All operators that the GPU can run, with fusion and without; null if it can run none. */
    gpu: programs,
    /** The whole graph, with the names of its nodes and values. */
    modelPath,
    /** A model that computes the CPU's values that the GPU reads; null if there are none. */
    crossing: share.arriving.length === 0 ? null : await writePrepared(prepared, leading, share.arriving, cacheFolder),
  };
}

/** Bytes of a value; 0 for one of unknown shape, which is made and read on the CPU. */
function sizeOf({ values }: PreparedGraph, value: string): number {
  const known = values.get(value);
  return known === undefined ? 0 : bytesOf(known);
}

const labelOf = ({ proto, name }: PreparedNode): string => `${proto.opType} ${name}`;

interface GpuShare {
  readonly programs: { readonly fused: Program; readonly single: Program } | null;
  /** Why the GPU cannot run a node, by its name. */
  readonly obstacles: ReadonlyMap<string, string>;
  /** Values of the CPU that it reads. */
  readonly arriving: readonly string[];
}

/** All nodes that the GPU can run. Without a refused node others may not compile any more, so this takes rounds. */
function gpuShareOf(
  prepared: PreparedGraph,
  planned: readonly PlannedOperator[],
  operators: readonly Operator[],
  settings: ProgramSettings,
): GpuShare {
  const living = planned.flatMap(({ nodes }) => nodes);
  const obstacles = new Map<string, string>();
  for (const { node, reason } of prepared.obstacles) obstacles.set(node, reason);
  /** An optional output that no node reads has no shape, and needs none. */
  const wanted = new Set([...prepared.outputs, ...living.flatMap(({ uses }) => uses)]);
  const isKnown = (value: string): boolean => prepared.values.has(value) || prepared.constants.has(value);
  for (const node of living) {
    const unknown = [...node.uses, ...node.outputs].find((value) => wanted.has(value) && !isKnown(value));
    if (unknown !== undefined && !obstacles.has(node.name)) {
      obstacles.set(node.name, `the shape of '${unknown}' is not known`);
    }
  }
  for (;;) {
    leaveWhole(planned, obstacles);
    const { graph, arriving } = gpuGraph(prepared, living, obstacles);
    if (graph === null) return { programs: null, obstacles, arriving };
    const key = `${prepared.base.modelHash} operators ${JSON.stringify([prepared.shapes, settings])}`;
    try {
      const [fused, single] = [true, false].map((fusion) =>
        compileProgram(graph, operators, settings, { fusion, key: `${key} ${fusion ? 'fused' : 'single'}` }),
      );
      return { programs: { fused: fused!, single: single! }, obstacles, arriving };
    } catch (error) {
      if (!(error instanceof ProgramError) || error.code !== 'unsupported') throw error;
      const before = obstacles.size;
      for (const { node, reason } of error.obstacles) obstacles.set(node, reason);
      // Without a new obstacle the next round would be the same.
      if (obstacles.size === before) throw error;
    }
  }
}

/** If the GPU cannot run one node of a group, the whole group stays on the CPU. */
function leaveWhole(planned: readonly PlannedOperator[], obstacles: Map<string, string>): void {
  for (const { nodes } of planned) {
    const lacking = nodes.find(({ name }) => obstacles.has(name));
    if (lacking === undefined) continue;
    for (const { name } of nodes) {
      if (!obstacles.has(name)) obstacles.set(name, `what it shares with '${lacking.name}' cannot leave the CPU`);
    }
  }
}

function gpuGraph(
  prepared: PreparedGraph,
  living: readonly PreparedNode[],
  obstacles: ReadonlyMap<string, string>,
): { readonly graph: PreparedGraph | null; readonly arriving: readonly string[] } {
  const nodes = living.filter(({ name }) => !obstacles.has(name));
  const others = living.filter(({ name }) => obstacles.has(name));
  const arrives = new Set(others.flatMap(({ outputs }) => outputs));
  const taken = new Set([...prepared.outputs, ...others.flatMap(({ uses }) => uses)]);
  const part = partOfGraph(prepared, nodes, arrives, taken);
  if (part.outputs.length === 0) return { graph: null, arriving: [] };
  return {
    graph: { ...prepared, ...part, obstacles: [] },
    arriving: part.inputs.filter((value) => arrives.has(value)),
  };
}

function launchesByOperator(planned: readonly PlannedOperator[], program: Program | undefined): Map<string, Launch[]> {
  const nameOf = new Map(planned.flatMap(({ name, nodes }) => nodes.map((node) => [labelOf(node), name] as const)));
  const launches = new Map<string, Launch[]>();
  for (const launch of program?.launches ?? []) {
    const name = nameOf.get(launch.label);
    if (name !== undefined) append(launches, name, launch);
  }
  return launches;
}

interface Group {
  readonly name: string;
  readonly bytes: number;
}

/** Groups of layers: layers that one operator reads are in one group, and resident together. */
function groupsOf(
  launches: ReadonlyMap<string, readonly Launch[]>,
  { layers }: WeightLayout,
): ReadonlyMap<number, Group> {
  const together = new Groups(layers.length);
  for (const list of launches.values()) {
    const [first, ...rest] = new Set(list.flatMap(({ reads }) => reads));
    for (const other of rest) together.join(first!, other);
  }
  const isNamed = new Set(layers.map(({ name }) => name)).size === layers.length;
  const groups = new Map<number, Group>();
  for (const { index } of layers) {
    const members = layers.filter((layer) => together.of(layer.index) === together.of(index));
    groups.set(index, {
      name: members.map(({ name, index: at }) => (isNamed ? name : `${at}: ${name}`)).join(' + '),
      bytes: members.reduce((sum, { bytes }) => sum + bytes, 0),
    });
  }
  return groups;
}

function describe(
  prepared: PreparedGraph,
  { name, nodes, uses, outputs }: PlannedOperator,
  obstacles: ReadonlyMap<string, string>,
  launches: ReadonlyMap<string, readonly Launch[]>,
  groups: ReadonlyMap<number, Group>,
): DraftedOperator {
  const isActivation = (value: string): boolean => !prepared.constants.has(value) && !prepared.weights.has(value);
  const sum = (values: readonly string[]): number =>
    values.reduce((bytes, value) => bytes + sizeOf(prepared, value), 0);
  const own = launches.get(name) ?? [];
  const output = sum(outputs.filter(isActivation));
  const [layer] = own.flatMap(({ reads }) => reads);
  const group = layer === undefined ? undefined : groups.get(layer);
  const lacking = nodes.find((node) => obstacles.has(node.name));
  return {
    name,
    operator: nodes.map(operatorName).join(' + '),
    nodes: nodes.map((node): DraftedNode => ({ name: node.name, label: labelOf(node) })),
    obstacle: lacking === undefined ? null : obstacles.get(lacking.name)!,
    bytes: {
      input: sum(uses.filter(isActivation)),
      output,
      ephemeral: Math.max(0, writtenBytes(own) - output),
      weights: group?.bytes ?? 0,
    },
    ...(group === undefined ? {} : { shares: group.name }),
  };
}

/** Bytes of the arena that an operator's launches write: its results and its scratch memory. */
function writtenBytes(launches: readonly Launch[]): number {
  const written = new Map<number, number>();
  for (const { operand, writtenBytes } of launches.flatMap((launch) => operandsOf(launch))) {
    if (operand.space !== 'arena' || writtenBytes === 0) continue;
    written.set(operand.byteOffset, Math.max(written.get(operand.byteOffset) ?? 0, writtenBytes));
  }
  return [...written.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** One edge for each value and each operator that reads it. */
function edgesOf(prepared: PreparedGraph, planned: readonly PlannedOperator[]): OperatorEdge[] {
  const makers = new Map(planned.flatMap(({ name, outputs }) => outputs.map((value) => [value, name] as const)));
  return planned.flatMap(({ name, uses }) =>
    uses.flatMap((value): OperatorEdge[] => {
      const maker = makers.get(value);
      if (maker === undefined || prepared.constants.has(value)) return [];
      return [[maker, name, sizeOf(prepared, value), value]];
    }),
  );
}

/**
 * The function's inputs with their shapes. `prepared.values` lacks inputs of types that the engine does not have; their
 * shapes are those that the function is compiled for.
 */
function inputsOf(prepared: PreparedGraph): DraftedInput[] {
  const graph = new Graph(prepared.model);
  return prepared.inputs.map((name): DraftedInput => {
    const known = prepared.values.get(name);
    if (known !== undefined) return { name, ...known, bytes: bytesOf(known) };
    const type = graph.type(name);
    const datatype = dataTypeOf(type?.elementType ?? 0);
    const shape = shapeIn(prepared.shapes, name);
    if (datatype === undefined || shape === undefined) {
      throw new GpuError('invalid', `input '${name}' is of no type that operators can be timed with`);
    }
    return { name, datatype, shape, bytes: elementCount(shape) * elementBytes[datatype] };
  });
}
