/** A thread that makes programs of models: seconds of work for a large one, during which the GPU process must go on answering. */
import { join } from 'node:path';
import { serve } from '../../process/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { drawInputs } from '../gate/draw-inputs.ts';
import { referenceOutputs } from '../gate/reference.ts';
import type { HybridPlan } from '../hybrid/index.ts';
import { paddingOf } from '../padding/index.ts';
import { operatorsWithout, type OperatorGroup } from '../operators/index.ts';
import { baseOf, layoutOfModel } from '../program/compile-model.ts';
import {
  compileModel,
  defaultSettings,
  ProgramError,
  type InputShapes,
  type ProgramSettings,
  type WeightLayout,
} from '../program/index.ts';
import { sizingInputs } from '../program/sizing-inputs.ts';
import { GpuError } from '../types.ts';
import type { CompileFailure } from './compiler.ts';

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
    | {
        readonly op: 'hybrid';
        readonly shapes: InputShapes;
        readonly cells: number;
        readonly plan: HybridPlan;
        readonly layout: WeightLayout;
      }
    | {
        readonly op: 'operators';
        readonly shapes: InputShapes;
        readonly cells: number;
        readonly layout: WeightLayout;
      }
    /** Inputs of these shapes to check a function with. */
    | { readonly op: 'inputs'; readonly shapes: InputShapes }
    /** What ONNX Runtime answers. */
    | { readonly op: 'reference'; readonly inputs: readonly Tensor[] }
  );

async function make(order: CompileOrder): Promise<unknown> {
  const { modelPath, cacheFolder, settings = defaultSettings } = order;
  const operators = operatorsWithout(order.withoutOperators);
  switch (order.op) {
    case 'program':
      return await compileModel(modelPath, order.shapes, operators, { cacheFolder, settings });
    case 'padding':
      return await paddingOf(modelPath, order.shapes, order.program, cacheFolder);
    case 'sizing':
      return [...sizingInputs(await baseOf(modelPath, cacheFolder))];
    case 'layout':
      return await layoutOfModel(modelPath, { cacheFolder, settings });
    case 'inputs':
      return drawInputs(await baseOf(modelPath, cacheFolder), order.shapes);
    case 'reference':
      return await referenceOutputs(modelPath, order.inputs, cacheFolder);
    case 'hybrid': {
      const { shapes, cells, plan, layout } = order;
      const { compileHybrid, hybridGraph } = await import('../hybrid/index.ts');
      const graph = await hybridGraph({ modelPath, shapes, cells, cacheFolder });
      return await compileHybrid(graph, plan, operators, settings, join(cacheFolder, 'parts'), layout);
    }
    case 'operators': {
      const { shapes, cells, layout } = order;
      const { draftOperators, hybridGraph } = await import('../hybrid/index.ts');
      const graph = await hybridGraph({ modelPath, shapes, cells, cacheFolder });
      return await draftOperators(graph, { operators, settings, partFolder: join(cacheFolder, 'parts'), layout });
    }
  }
}

function failureOf(error: unknown): CompileFailure {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof ProgramError) return { code: error.code, message, obstacles: error.obstacles };
  return { code: error instanceof GpuError ? 'plan' : 'model', message, obstacles: [] };
}

serve<CompileOrder, CompileFailure>(async (order) => ({ answer: await make(order) }), { failureOf });
