/**
 * Programs: a model with given input shapes as a list of launches over one activation arena. Plain data that can be
 * written to disk; addresses enter only when the engine binds a program to a device. Nothing here runs.
 */
import type { LayerKind } from '../../onnx/index.ts';
import type { DataType } from '../../tensor/index.ts';
import type { Work } from './work.ts';

/** Where the bytes of one weight are on disk. */
export interface WeightSource {
  /** Absolute path of the model, of its external data, or of the prepared constants. */
  readonly path: string;
  readonly byteOffset: number;
}

export interface ProgramWeight {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly bytes: number;
  /** The layer that brings it. */
  readonly layer: number;
  /** In the layer's block; a multiple of 256. */
  readonly byteOffset: number;
  readonly source: WeightSource;
  /** Set where the bytes are converted while the host store is filled: the type on disk. */
  readonly storedAs?: DataType;
}

export interface WeightLayer {
  readonly index: number;
  readonly name: string;
  readonly kind: LayerKind;
  /** Of the block: all its weights, each aligned to 256 bytes. 0 for layers without weights. */
  readonly bytes: number;
}

/**
 * A model's weights by layers in execution order: the unit of loading, of residency and of plans. The same for all
 * input shapes.
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
  /** Values that depend on the input shapes (folded masks, positions): one small block that stays with the program. */
  | { readonly space: 'constant'; readonly byteOffset: number }
  /** The activation arena; inputs and outputs lie in it too. */
  | { readonly space: 'arena'; readonly byteOffset: number };

export type Launch = Work<Operand> & {
  /** The layer whose execution it belongs to. */
  readonly layer: number;
  /**
   * Every layer whose weights it reads: it must wait for all of them. Mostly none or [layer]; tied weights add earlier
   * ones.
   */
  readonly reads: readonly number[];
  /** Nodes that it stands for, for messages and profiles: 'MatMul /encoder/layer.0/...'. */
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
  /** By the model's content, the input shapes, the settings and the compiler's version: equal keys, equal programs. */
  readonly key: string;
  readonly layout: WeightLayout;
  readonly inputs: readonly ProgramTensor[];
  readonly outputs: readonly ProgramTensor[];
  readonly arenaBytes: number;
  /** Most that a matrix product may use as scratch memory. */
  readonly workspaceBytes: number;
  readonly constants: Uint8Array;
  /** One translation unit with every kernel, without the prelude. */
  readonly source: string;
  /** In execution order; layers never go backwards. */
  readonly launches: readonly Launch[];
  /** Layers whose weights the launches read, for a program of a part of the function; all of them when left out. */
  readonly layersRead?: readonly number[];
}

/**
 * What a model of 32-bit floats is computed in. `exact`: in those. `tf32`: its matrix products on tensor cores, with 10
 * bits of mantissa. `fp16`, `bf16`: weights of products and convolutions are kept and cross the link in 16 bits, and so
 * are the activations around them; sums, normalisations and the softmax are of 32 bits. Values of 16 bits stay as they
 * are under each.
 */
export type ProgramPrecision = 'exact' | 'tf32' | 'fp16' | 'bf16';

export interface ProgramSettings {
  readonly precision: ProgramPrecision;
  /**
   * Matrix products by the library (the default), or by the engine's own kernel: for weights in host memory on devices
   * whose library cannot read there.
   */
  readonly products?: 'library' | 'own';
}

/** Why a model cannot be a program: every operator that is in the way, by name. */
export interface Obstacle {
  readonly node: string;
  readonly operator: string;
  readonly reason: string;
}

/** What one input was when a program was made for it. */
export interface InputShape {
  readonly name: string;
  readonly shape: readonly number[];
  /** Its elements, where they decide how large other tensors are: the axes of a sum, the new shape of a Reshape. */
  readonly values?: readonly number[];
}

/** Of all inputs that a program was made for, in whatever order. */
export type InputShapes = readonly InputShape[];
