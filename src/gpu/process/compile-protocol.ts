/** What the GPU process asks of the thread that makes programs, and how that fails. */
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
  /** Groups of operators that this machine's GPUs get wrong. */
  readonly withoutOperators: readonly OperatorGroup[];
}

export type CompileOrder = Subject &
  (
    | { readonly op: 'program'; readonly shapes: InputShapes }
    /** Whether these inputs may run in the program of others. */
    | { readonly op: 'padding'; readonly shapes: InputShapes; readonly program: InputShapes }
    /** The inputs whose values a program has to be made for. */
    | { readonly op: 'sizing' }
    /** The weights of a model that need not be one which can be a program. */
    | { readonly op: 'layout' }
    | ({ readonly op: 'hybrid'; readonly plan: HybridPlan } & DraftOrder)
    | ({ readonly op: 'operators' } & DraftOrder)
    /** Inputs of these shapes to check a function with. */
    | { readonly op: 'inputs'; readonly shapes: InputShapes }
    /** What ONNX Runtime answers. */
    | { readonly op: 'reference'; readonly inputs: readonly Tensor[] }
  );

/** By what is asked for. */
export interface CompileAnswers {
  readonly program: Program;
  readonly padding: PaddingFound;
  readonly sizing: readonly string[];
  readonly layout: WeightLayout;
  readonly hybrid: HybridProgram;
  /** What the operator profile of a function starts from. */
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
