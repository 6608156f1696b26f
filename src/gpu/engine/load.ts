/** Loading ahead: weights are copied to a GPU while it executes something else. */
import type { ColdStartPlan } from '../../plan/index.ts';
import { GpuError, type LoadResult } from '../types.ts';
import type { GpuLane } from './lane.ts';
import { cancelled, orCancelled } from './mutex.ts';
import type { EngineFunction, Preemption, Residency } from './residency.ts';
import { repair } from './repair.ts';
import type { RunContext } from './run-context.ts';
import { decodingOf, Transfer } from './transfer.ts';

export interface LoadOptions {
  readonly gpu: number;
  readonly plan: ColdStartPlan;
  readonly signal?: AbortSignal;
}

/** Resolves when all layers that the plan loads are on the GPU. @throws GpuError */
export async function loadAhead(
  context: RunContext,
  target: EngineFunction,
  lane: GpuLane,
  options: LoadOptions,
): Promise<LoadResult> {
  const { plan, signal } = options;
  target.checkPlan(plan, lane.index);
  const residency = target.residency(lane);
  const layers = plan.layers.flatMap(({ method }, layer) =>
    method === 'load' && target.layout.layers[layer]!.bytes > 0 ? [layer] : [],
  );
  let bytes = 0;
  let fromDisk = false;
  for (;;) {
    const part = await loadOnce(context, residency, plan, layers, signal);
    bytes += part.bytes;
    fromDisk ||= part.fromDisk;
    if (part.preempted === 'evicted')
      throw new GpuError('cancelled', `function '${target.key}' was evicted while it was loaded`);
    // A run came in between and loads the rest itself.
    if (part.preempted === null) break;
  }
  const streams = new Set(layers.flatMap((layer) => unpassed(residency, layer)));
  await Promise.all([...streams].map((stream) => stream.finished()));
  lane.decoding.find();
  if (residency.layers.some((layer) => lane.decoding.isWrong(residency.block(layer)))) {
    using _turn = await residency.mutex.lock(signal);
    await repair(context, residency);
  }
  return { bytes, fromDisk };
}

function unpassed(residency: Residency, layer: number) {
  const fence = residency.ready(layer);
  return fence === null || fence.passed ? [] : [fence.stream];
}

async function loadOnce(
  context: RunContext,
  residency: Residency,
  plan: ColdStartPlan,
  layers: readonly number[],
  signal: AbortSignal | undefined,
): Promise<LoadResult & { readonly preempted: Preemption | null }> {
  const { weights } = residency;
  const turn = await residency.mutex.lock(signal);
  let lease: Disposable | undefined;
  let transfer: Transfer | undefined;
  let fromDisk = false;
  const preempt = new AbortController();
  try {
    // The function may have been removed while this load waited for its turn.
    weights.checkKept();
    const missing = layers.filter((layer) => !residency.has(layer));
    residency.hold(layers);
    if (missing.length === 0) return { bytes: 0, fromDisk: false, preempted: null };
    residency.family.ahead = { residency, stop: preempt };
    const either = signal === undefined ? preempt.signal : AbortSignal.any([signal, preempt.signal]);
    fromDisk = !weights.areFilled(missing);
    lease = await weights.lease(missing, either);
    await residency.reserve(missing, either);
    const decoding = await decodingOf(context, residency, missing);
    transfer = new Transfer(context, residency, plan, missing, decoding);
    while (transfer.next !== undefined && !either.aborted) {
      if (!weights.isFilled(transfer.next)) await orCancelled(weights.layerFilled(transfer.next), either);
      await transfer.submit();
    }
  } catch (error) {
    if (!preempt.signal.aborted || signal?.aborted === true) throw context.failed(error);
  } finally {
    if (residency.family.ahead?.stop === preempt) residency.family.ahead = null;
    transfer?.close();
    turn[Symbol.dispose]();
    const streams = [...(transfer?.streams ?? [])];
    void Promise.allSettled(streams.map((stream) => stream.finished())).then(() => lease?.[Symbol.dispose]());
  }
  if (signal?.aborted === true) throw cancelled();
  const bytes = transfer?.submittedBytes ?? 0;
  return { bytes, fromDisk, preempted: preempt.signal.aborted ? (preempt.signal.reason as Preemption) : null };
}
