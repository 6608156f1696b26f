/** Requests of the GPU process to the thread that makes programs, and their failures. */
import type { Tensor } from '../../tensor/index.ts';
import type { DraftOrder, HybridPlan, HybridProgram, OperatorDraft } from '../hybrid/index.ts';
import type { OperatorGroup } from '../operators/index.ts';
import type { PaddingFound } from '../padding/padding-of.ts';
import type {
  InputShapes,
  Obstacle,
  Program,
  ProgramErrorCode,
  ProgramSettings,
  WeightLayout,
} from '../program/index.ts';

interface Subject {
  readonly modelPath: string;
  readonly cacheFolder: string;
  readonly settings?: ProgramSettings;
  /** Groups of operators that this machine's GPUs compute wrongly. */
  readonly withoutOperators: readonly OperatorGroup[];
}

/** What the process asks with each operation, and what the thread answers. */
export interface CompileOperations {
  readonly program: [{ readonly shapes: InputShapes }, Program];
  /** Whether these inputs may run, padded, in the program of other shapes. */
  readonly padding: [{ readonly shapes: InputShapes; readonly program: InputShapes }, PaddingFound];
  /** The inputs whose values a program has to be made for. */
  readonly sizing: [object, readonly string[]];
  /** The weights of a model, which need not be able to become a program. */
  readonly layout: [object, WeightLayout];
  readonly hybrid: [DraftOrder & { readonly plan: HybridPlan }, HybridProgram];
  /** The basis of a function's operator profile. */
  readonly operators: [DraftOrder, OperatorDraft];
  /** Inputs of these shapes to check a function with. */
  readonly inputs: [{ readonly shapes: InputShapes }, readonly Tensor[]];
  /** What ONNX Runtime answers. */
  readonly reference: [{ readonly inputs: readonly Tensor[] }, readonly Tensor[]];
  /** A program that also gives the values that jumps read; null if one of these outputs is behind none. See jumps.ts. */
  readonly opened: [
    { readonly shapes: InputShapes; readonly outputs: readonly string[] },
    { readonly program: Program; readonly values: readonly string[] } | null,
  ];
  /** What ONNX Runtime answers where jumps read these values, and its own ones. */
  readonly 'opened-reference': [
    { readonly inputs: readonly Tensor[]; readonly values: readonly Tensor[] },
    readonly Tensor[],
  ];
}

export type CompileOrder = {
  readonly [Op in keyof CompileOperations]: Subject & { readonly op: Op } & CompileOperations[Op][0];
}[keyof CompileOperations];

export type CompileAnswer<Op extends keyof CompileOperations> = CompileOperations[Op][1];

export interface CompileFailure {
  /** `model`: the file could not be read as a model. `plan`: a plan over GPU and CPU cannot be carried out. */
  readonly code: ProgramErrorCode | 'model' | 'plan';
  readonly message: string;
  readonly obstacles: readonly Obstacle[];
}
