/**
 * A program: a model with given input shapes as a list of launches over one activation arena. Plain data, kept on disk
 * too; the engine fills in addresses when it binds a program to a device.
 */
import type { LayerKind } from '../../operators/index.ts';
import type { CodedPack } from '../../coding/index.ts';
import type { DataType } from '../../tensor/index.ts';
import type { Work } from '../work.ts';

/** Where the bytes of one weight are on disk. */
export interface WeightSource {
  /** Absolute path of the model, of its external data, or of computed or narrowed weights. */
  readonly path: string;
  readonly byteOffset: number;
}

export interface ProgramWeight {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly bytes: number;
  /** The layer that it loads with. */
  readonly layer: number;
  /** In the layer's block; a multiple of 256. */
  readonly byteOffset: number;
  readonly source: WeightSource;
}

export interface WeightLayer {
  readonly index: number;
  readonly name: string;
  readonly kind: LayerKind;
  /** All its weights, each aligned to 256 bytes; 0 for layers without weights. */
  readonly bytes: number;
  /** Its weights coded without loss: so they are held in host memory and cross the link. */
  readonly coded?: CodedLayer;
}

export interface CodedLayer extends CodedPack {
  readonly source: WeightSource;
  readonly codedBytes: number;
}

/** Bytes of a layer in host memory. */
export const hostBytes = ({ bytes, coded }: Pick<WeightLayer, 'bytes' | 'coded'>): number => coded?.codedBytes ?? bytes;

/**
 * A model's weights by layers, in execution order. A layer is the unit of loading, residency and plans. The layout is
 * the same for all input shapes.
 */
export interface WeightLayout {
  readonly layers: readonly WeightLayer[];
  readonly weights: readonly ProgramWeight[];
  /** Sum of the layers' bytes. */
  readonly bytes: number;
}

/** Where an operand of a launch is. */
export type Operand =
  | { readonly space: 'weight'; readonly weight: number; readonly byteOffset: number }
  /** A block with the program's folded values, which depend on the input shapes: masks, positions. */
  | { readonly space: 'constant'; readonly byteOffset: number }
  /** The activation arena, with inputs and outputs. */
  | { readonly space: 'arena'; readonly byteOffset: number };

export type Launch = Work<Operand> & {
  /** The layer whose execution it belongs to. */
  readonly layer: number;
  /**
   * Every layer whose weights it reads, and so has to wait for. Mostly none or [layer]; tied weights add earlier ones.
   */
  readonly reads: readonly number[];
  /** The model's nodes that it executes, for messages and profiles: 'MatMul /encoder/layer.0/...'. */
  readonly label: string;
};

export interface ProgramTensor {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  /** In the arena. */
  readonly byteOffset: number;
  readonly bytes: number;
}

export interface Program {
  /**
   * A hash of the graph, the input shapes, the settings and the engine's version. Programs with equal keys differ in
   * where their weights are, and in nothing else.
   */
  readonly key: string;
  readonly layout: WeightLayout;
  readonly inputs: readonly ProgramTensor[];
  readonly outputs: readonly ProgramTensor[];
  readonly arenaBytes: number;
  /** Limit for the scratch memory of a matrix product. */
  readonly workspaceBytes: number;
  readonly constants: Uint8Array;
  /** One translation unit with every kernel, without the prelude. */
  readonly source: string;
  /** In execution order; layers ascend. */
  readonly launches: readonly Launch[];
  /** Layers whose weights the launches read, for a program of a part of the function. Default: all. */
  readonly layersRead?: readonly number[];
}

/** A reason why a model has no program: a node, its operator, and why the engine cannot run it. */
export interface Obstacle {
  readonly node: string;
  readonly operator: string;
  readonly reason: string;
  /** With other sizes of the inputs it would be the same: an operator that the engine does not have, say. */
  readonly isAnySize?: true;
}

/** The shape of an input that a program is made for. */
export interface InputShape {
  readonly name: string;
  readonly shape: readonly number[];
  /** Its elements, if they decide how large other tensors are: the axes of a sum, the new shape of a Reshape. */
  readonly values?: readonly number[];
}

/** One for each input, in any order. */
export type InputShapes = readonly InputShape[];
