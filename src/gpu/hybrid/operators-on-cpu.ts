/** The operator profile of a function where the GPU's side is not measured, but given by whoever estimates it. */
import { join } from 'node:path';
import { readModel, type ModelProto } from '../../onnx/index.ts';
import type { GraphProfile, OperatorsEstimate } from '../../profile/index.ts';
import { operators } from '../operators/index.ts';
import { defaultSettings, type InputShapes } from '../program/index.ts';
import { CpuCores } from './cpu-cores.ts';
import { draftOperators } from './operator-draft.ts';
import { graphProfileOf, measureCall, timeOnCpu, type OperatorProgress } from './operator-profile.ts';
import { hybridGraph } from './prepare.ts';

export interface ProfileOnCpuOptions {
  readonly modelPath: string;
  readonly shapes: InputShapes;
  /** Into which the longest recurrent operator is unrolled. */
  readonly cells: number;
  /** Of prepared graphs and parts. */
  readonly cacheFolder: string;
  readonly cores: number;
  /** The operating system's numbers of the cores. */
  readonly coreNumbers?: readonly number[];
  readonly iterations?: number;
  /** What the nodes of a model take on the GPU, by name, and what crossings take. */
  readonly estimate: (model: ModelProto) => OperatorsEstimate;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: OperatorProgress) => void;
}

/** Needs no GPU and no driver. @throws ProgramError, OnnxError, GpuError */
export async function profileOperatorsOnCpu(options: ProfileOnCpuOptions): Promise<GraphProfile> {
  const { modelPath, shapes, cells, cacheFolder, estimate, ...timing } = options;
  const prepared = await hybridGraph({ modelPath, shapes, cells, cacheFolder });
  const partFolder = join(cacheFolder, 'parts');
  const draft = await draftOperators(prepared, { operators, settings: defaultSettings, partFolder });
  const { gpuMs, bandwidth, latencyMs } = estimate(await readModel(draft.modelPath, { weights: 'file' }));
  // What launches nothing takes nothing, whatever its form might suggest.
  const launched = new Set(draft.gpu?.single.launches.map(({ label }) => label));
  const byLabel = draft.operators
    .flatMap(({ nodes }) => nodes)
    .flatMap(({ name, label }) => (launched.has(label) ? [[label, gpuMs.get(name) ?? 0] as const] : []));
  const cpuMs = await timeOnCpu({ draft, ...timing });
  const cores = new CpuCores({ count: 1, ...(timing.coreNumbers && { cores: timing.coreNumbers }) });
  try {
    const callMs = await measureCall(cores);
    // The end of a copy is told by a thread, and a message from one takes half of what a call takes there and back.
    const crossingMs = latencyMs + callMs / 2;
    return graphProfileOf(draft, { gpuMs: new Map(byLabel), cpuMs, bandwidth, latencyMs: crossingMs, callMs });
  } finally {
    await cores.close();
  }
}
