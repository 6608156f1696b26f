/** Requests of the GPU process to the thread that makes programs, and their failures. */
import type { Tensor } from '../../tensor/index.ts';
import type { DraftOrder, HybridPlan, HybridProgram, OperatorDraft } from '../hybrid/index.ts';
import type { OperatorGroup } from '../operators/index.ts';
import type { PaddingFound } from '../padding/index.ts';
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

export type CompileOrder = Subject &
  (
    | { readonly op: 'program'; readonly shapes: InputShapes }
    /** Whether these inputs may run, padded, in the program of other shapes. */
    | { readonly op: 'padding'; readonly shapes: InputShapes; readonly program: InputShapes }
    /** The inputs whose values a program has to be made for. */
    | { readonly op: 'sizing' }
    /** The weights of a model, which need not be able to become a program. */
    | { readonly op: 'layout' }
    | ({ readonly op: 'hybrid'; readonly plan: HybridPlan } & DraftOrder)
    | ({ readonly op: 'operators' } & DraftOrder)
    /** Inputs of these shapes to check a function with. */
    | { readonly op: 'inputs'; readonly shapes: InputShapes }
    /** What ONNX Runtime answers. */
    | { readonly op: 'reference'; readonly inputs: readonly Tensor[] }
  );

/** The answers, by kind of request. */
export interface CompileAnswers {
  readonly program: Program;
  readonly padding: PaddingFound;
  readonly sizing: readonly string[];
  readonly layout: WeightLayout;
  readonly hybrid: HybridProgram;
  /** The basis of a function's operator profile. */
  readonly operators: OperatorDraft;
  readonly inputs: readonly Tensor[];
  readonly reference: readonly Tensor[];
}

export interface CompileFailure {
  /** `model`: the file could not be read as a model. `plan`: a plan over GPU and CPU cannot be carried out. */
  readonly code: ProgramErrorCode | 'model' | 'plan';
  readonly message: string;
  readonly obstacles: readonly Obstacle[];
}
