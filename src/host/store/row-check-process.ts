/** The process that runs a model to see whether its rows are independent: see row-checks.ts. */
import { declaredRows, rowsByGraph, rowsByRuns, thresholdsOf, type RowsByGraph } from '../../rows/index.ts';
import { loadSessions, makeInputs, trialSizesOf } from '../../cpu/index.ts';
import { describeModel, readModel, servedModel, type ModelProto, type TensorSpec } from '../../onnx/index.ts';
import { typesOf } from '../../operators/index.ts';
import { serve } from '../../process/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { RowCheckApi, RowCheckOrder, RowsFound } from './row-checks.ts';

serve<RowCheckApi>({ check: (order, { tensors }) => check(order, tensors) });

async function check({ modelPath, rowsMax, timeMs }: RowCheckOrder, given: readonly Tensor[]): Promise<RowsFound> {
  const file = await readModel(modelPath);
  const { model } = servedModel(file);
  const { inputs, outputs, opening } = describeModel(file, typesOf);
  const declared = declaredRows({ inputs, outputs });
  if (declared.kind === 'none') return { kind: 'mixing', reason: declared.reason };
  const thresholds = thresholdsOf(model);
  const candidates = given.length > 0 ? [given] : guesses(inputs);
  const graph = shownBy(model, candidates[0]!);
  if (graph.kind === 'mixing') return graph;
  const { ModelSession } = await loadSessions();
  const session = await ModelSession.open(modelPath, { threads: 1, spinning: false, isAlone: true }, opening);
  const run = (tensors: readonly Tensor[]): Tensor[] => session.runTensors(tensors);
  const accepted = candidates.find((each) => runs(run, each)) ?? candidates[0]!;
  // Of the processor's time: on a busy machine the verdict comes later, and is the same.
  const isTimeUp = (): boolean => usedMs() > timeMs;
  const found = rowsByRuns({ run, inputs: accepted, rowsMax, thresholds, isTimeUp });
  switch (found.kind) {
    case 'mixing':
      return found;
    case 'independent':
      return { kind: 'independent', by: graph.kind === 'independent' ? 'graph' : 'runs' };
    case 'unknown': {
      // What the graph shows is confirmed by a few runs.
      const isConfirmed = graph.kind === 'independent' && found.isOutOfTime && found.compared.length > 0;
      return isConfirmed ? { kind: 'independent', by: 'graph' } : { kind: 'unknown', reason: found.reason };
    }
  }
}

function usedMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function shownBy(model: ModelProto, inputs: readonly Tensor[]): RowsByGraph {
  try {
    return rowsByGraph(model, inputs);
  } catch (error) {
    return { kind: 'unknown', reason: error instanceof Error ? error.message : String(error) };
  }
}

/** Inputs of one row, for a model that no call has shown any. */
const guesses = (inputs: readonly TensorSpec[]): Tensor[][] =>
  trialSizesOf(inputs, {}).flatMap((sizes) =>
    ([1, 0] as const).map((integer) => makeInputs(inputs, 1, sizes, integer)),
  );

function runs(run: (inputs: readonly Tensor[]) => readonly Tensor[], inputs: readonly Tensor[]): boolean {
  try {
    run(inputs);
    return true;
  } catch {
    return false;
  }
}
