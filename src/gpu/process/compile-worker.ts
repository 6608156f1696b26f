/** A thread that makes programs of models: seconds of work for a large one, during which the GPU process must go on answering. */
import { parentPort } from 'node:worker_threads';
import { join } from 'node:path';
import { compileHybrid } from '../hybrid/compile.ts';
import { draftOperators } from '../hybrid/operator-draft.ts';
import { hybridGraph } from '../hybrid/prepare.ts';
import type { HybridPlan } from '../hybrid/types.ts';
import { operators } from '../operators/index.ts';
import { layoutOfModel } from '../program/compile-model.ts';
import {
  compileModel,
  defaultSettings,
  ProgramError,
  type InputShapes,
  type ProgramSettings,
  type WeightLayout,
} from '../program/index.ts';
import { GpuError } from '../types.ts';
import type { CompileAnswer } from './compiler.ts';

interface Subject {
  readonly id: number;
  readonly modelPath: string;
  readonly cacheFolder: string;
  readonly settings?: ProgramSettings;
}

export type CompileOrder = Subject &
  (
    | { readonly op: 'program'; readonly shapes: InputShapes }
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
  );

async function make(order: CompileOrder): Promise<unknown> {
  const { modelPath, cacheFolder, settings = defaultSettings } = order;
  switch (order.op) {
    case 'program':
      return await compileModel(modelPath, order.shapes, operators, { cacheFolder, settings });
    case 'layout':
      return await layoutOfModel(modelPath, { cacheFolder, settings });
    case 'hybrid': {
      const { shapes, cells, plan, layout } = order;
      const graph = await hybridGraph({ modelPath, shapes, cells, cacheFolder });
      return await compileHybrid(graph, plan, operators, settings, join(cacheFolder, 'parts'), layout);
    }
    case 'operators': {
      const { shapes, cells, layout } = order;
      const graph = await hybridGraph({ modelPath, shapes, cells, cacheFolder });
      return await draftOperators(graph, { operators, settings, partFolder: join(cacheFolder, 'parts'), layout });
    }
  }
}

async function compile(order: CompileOrder): Promise<CompileAnswer> {
  const { id } = order;
  try {
    return { id, ok: true, made: await make(order) };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    if (error instanceof ProgramError) return { id, ok: false, code: error.code, message, obstacles: error.obstacles };
    return { id, ok: false, code: error instanceof GpuError ? 'plan' : 'model', message, obstacles: [] };
  }
}

parentPort!.on('message', (order: CompileOrder) => {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
  void compile(order).then((answer) => parentPort!.postMessage(answer));
});
