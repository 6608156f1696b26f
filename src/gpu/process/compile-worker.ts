/**
 * A thread that makes programs of models: seconds of work for a large one, during which the GPU process must go on
 * answering.
 */
import { join } from 'node:path';
import type { ModelProto } from '../../onnx/index.ts';
import { serve } from '../../process/index.ts';
import { drawInputs } from '../gate/draw-inputs.ts';
import { areBehindJumps, valuesBeforeJumps, withOutputs } from '../gate/jumps.ts';
import { openedReference, referenceOutputs } from '../gate/reference.ts';
import { paddingOf } from '../padding/padding-of.ts';
import { operatorsWithout } from '../operators/index.ts';
import { baseOf, layoutOfModel } from '../program/compile-model.ts';
import { compileModel, defaultSettings, ProgramError } from '../program/index.ts';
import { sizingInputs } from '../program/sizing-inputs.ts';
import { GpuError } from '../types.ts';
import type { CompileFailure, CompileOrder } from './compile-protocol.ts';

async function make(order: CompileOrder): Promise<unknown> {
  const { modelPath, cacheFolder, settings = defaultSettings } = order;
  const operators = operatorsWithout(order.withoutOperators);
  const partFolder = join(cacheFolder, 'parts');
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
    case 'opened': {
      const { model } = await baseOf(modelPath, cacheFolder);
      if (!areBehindJumps(model, order.outputs)) return null;
      const values = valuesBeforeJumps(model);
      const change = (whole: ModelProto): ModelProto => withOutputs(whole, values);
      const changed = { name: 'opened before jumps', change };
      const program = await compileModel(modelPath, order.shapes, operators, { cacheFolder, settings, changed });
      return { program, values };
    }
    case 'opened-reference':
      return await openedReference(modelPath, order.inputs, order.values, cacheFolder);
    case 'hybrid': {
      const { compileHybrid, hybridGraph } = await import('../hybrid/index.ts');
      const graph = await hybridGraph(order);
      return await compileHybrid(graph, order.plan, operators, settings, partFolder, order.layout);
    }
    case 'operators': {
      const { draftOperators, hybridGraph } = await import('../hybrid/index.ts');
      return await draftOperators(await hybridGraph(order), { operators, settings, partFolder, layout: order.layout });
    }
  }
}

function failureOf(error: unknown): CompileFailure {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof ProgramError) return { code: error.code, message, obstacles: error.obstacles };
  return { code: error instanceof GpuError ? 'plan' : 'model', message, obstacles: [] };
}

serve<CompileOrder, CompileFailure>(async (order) => ({ answer: await make(order) }), { failureOf });
