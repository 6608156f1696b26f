/**
 * A thread that makes programs of models: seconds of work for a large one, during which the GPU process must go on
 * answering.
 */
import type { ModelProto } from '../../onnx/index.ts';
import { serve } from '../../process/index.ts';
import { drawInputs } from '../gate/draw-inputs.ts';
import { areBehindJumps, valuesBeforeJumps, withOutputs } from '../gate/jumps.ts';
import { openedReference, referenceOutputs } from '../gate/reference.ts';
import { paddingOf } from '../padding/padding-of.ts';
import { operators } from '../operators/index.ts';
import { baseOf, layoutOfModel } from '../program/compile-model.ts';
import { compileModel, defaultSettings, ProgramError, type ProgramSettings } from '../program/index.ts';
import { layerIds } from '../program/layer-ids.ts';
import { sizingInputs } from '../program/sizing-inputs.ts';
import { CompileError, type CompilerApi, type MakingSettings } from './compiler.ts';

interface Tools {
  readonly settings: ProgramSettings;
  readonly cacheFolder: string;
}

/** A method of the thread: what goes wrong in it is wrong with the model, or with the plan. */
function making<Order extends MakingSettings, Made>(
  make: (order: Order, tools: Tools) => Made | Promise<Made>,
): (order: Order) => Promise<Made> {
  return async (order) => {
    const { settings = defaultSettings, cacheFolder } = order;
    try {
      return await make(order, { settings, cacheFolder });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (!(error instanceof ProgramError)) throw new CompileError('invalid', message);
      throw new CompileError(error.code === 'unsupported' ? 'unsupported' : 'invalid', message, error.obstacles);
    }
  };
}

serve<CompilerApi>(
  {
    program: making(({ modelPath, shapes }, { cacheFolder, settings }) =>
      compileModel(modelPath, shapes, operators, { cacheFolder, settings }),
    ),
    padding: making(({ modelPath, shapes, program }, { cacheFolder }) =>
      paddingOf(modelPath, shapes, program, cacheFolder),
    ),
    sizing: making(async ({ modelPath }, { cacheFolder }) => [...sizingInputs(await baseOf(modelPath, cacheFolder))]),
    layout: making(({ modelPath }, { cacheFolder, settings }) => layoutOfModel(modelPath, { cacheFolder, settings })),
    ids: making(({ layout }, { cacheFolder }) => layerIds(layout, cacheFolder)),
    inputs: making(async ({ modelPath, shapes }, { cacheFolder }) =>
      drawInputs(await baseOf(modelPath, cacheFolder), shapes),
    ),
    reference: making(({ modelPath, inputs }) => referenceOutputs(modelPath, inputs)),
    opened: making(async ({ modelPath, shapes, outputs }, { cacheFolder, settings }) => {
      const { model } = await baseOf(modelPath, cacheFolder);
      if (!areBehindJumps(model, outputs)) return null;
      const values = valuesBeforeJumps(model);
      const change = (whole: ModelProto): ModelProto => withOutputs(whole, values);
      const changed = { name: 'opened before jumps', change };
      const program = await compileModel(modelPath, shapes, operators, { cacheFolder, settings, changed });
      return { program, values };
    }),
    openedReference: making(({ modelPath, inputs, values }, { cacheFolder }) =>
      openedReference(modelPath, inputs, values, cacheFolder),
    ),
    hybrid: making(async (order, { settings, cacheFolder }) => {
      const { compileHybrid, hybridGraph } = await import('../hybrid/index.ts');
      const graph = await hybridGraph(order);
      return await compileHybrid(graph, order.plan, operators, settings, cacheFolder, order.layout);
    }),
    operators: making(async (order, { settings, cacheFolder }) => {
      const { draftOperators, hybridGraph } = await import('../hybrid/index.ts');
      return await draftOperators(await hybridGraph(order), { operators, settings, cacheFolder, layout: order.layout });
    }),
  },
  { errors: { CompileError } },
);
