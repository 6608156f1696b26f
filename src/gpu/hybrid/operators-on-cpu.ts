/** The operator profile of a function with an estimate for the GPU instead of measurements. */
import { join } from 'node:path';
import { readModel, type ModelProto } from '../../onnx/index.ts';
import type { GraphProfile, OperatorsEstimate } from '../../profile/index.ts';
import { operators } from '../operators/index.ts';
import { defaultSettings } from '../program/index.ts';
import { CpuCores } from './cpu-cores.ts';
import { draftOperators } from './operator-draft.ts';
import { graphProfileOf, measureCall, timeOnCpu, type CpuTimingOptions } from './operator-profile.ts';
import { hybridGraph, type HybridGraphOptions } from './prepare.ts';

export interface ProfileOnCpuOptions extends HybridGraphOptions, Omit<CpuTimingOptions, 'draft'> {
  /** Estimates times on the GPU, by node name, and of crossings. */
  readonly estimate: (model: ModelProto) => OperatorsEstimate;
}

/** Needs no GPU and no driver. @throws ProgramError, OnnxError, GpuError */
export async function profileOperatorsOnCpu(options: ProfileOnCpuOptions): Promise<GraphProfile> {
  const { modelPath, shapes, cells, cacheFolder, estimate, ...timing } = options;
  const prepared = await hybridGraph({ modelPath, shapes, cells, cacheFolder });
  const partFolder = join(cacheFolder, 'parts');
  const draft = await draftOperators(prepared, { operators, settings: defaultSettings, partFolder });
  const { gpuMs, bandwidth, latencyMs } = estimate(await readModel(draft.modelPath));
  // The estimate goes by operator and shape, but an operator without launches takes no time.
  const launched = new Set(draft.gpu?.single.launches.map(({ label }) => label));
  const byLabel = draft.operators
    .flatMap(({ nodes }) => nodes)
    .flatMap(({ name, label }) => (launched.has(label) ? [[label, gpuMs.get(name) ?? 0] as const] : []));
  const cpuMs = await timeOnCpu({ draft, ...timing });
  const cores = new CpuCores({ count: 1, ...(timing.coreNumbers && { cores: timing.coreNumbers }) });
  try {
    const callMs = await measureCall(cores);
    // A thread reports the end of a copy; its message takes half the time of a call's round trip.
    const crossingMs = latencyMs + callMs / 2;
    return graphProfileOf(draft, { gpuMs: new Map(byLabel), cpuMs, bandwidth, latencyMs: crossingMs, callMs });
  } finally {
    await cores.close();
  }
}
