/** Loading ahead: weights are copied to a GPU while it executes something else. */
import type { ColdStartPlan } from '../../plan/index.ts';
import { GpuError, type LoadResult } from '../types.ts';
import type { Anatomy } from './anatomy.ts';
import type { GpuLane } from './lane.ts';
import { orCancelled } from './mutex.ts';
import type { EngineFunction, Residency } from './residency.ts';
import { repair } from './repair.ts';
import type { RunContext } from './run-context.ts';
import { decodingOf, Transfer } from './transfer.ts';
import { given } from '../../tools/index.ts';

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
  const result = await bring(context, residency, plan, layers, { signal });
  const streams = new Set(layers.flatMap((layer) => unpassed(residency, layer)));
  await Promise.all([...streams].map((stream) => stream.finished()));
  lane.decoding.find();
  if (residency.layers.some((layer) => lane.decoding.isWrong(residency.block(layer)))) {
    using _turn = await residency.mutex.lock(signal);
    await repair(context, residency);
  }
  return result;
}

function unpassed(residency: Residency, layer: number) {
  const fence = residency.ready(layer);
  return fence === null || fence.passed ? [] : [fence.stream];
}

interface BringOptions {
  readonly signal: AbortSignal | undefined;
  readonly anatomy?: Anatomy | null;
}

/**
 * Submits the copies of the layers that are missing, as they are read. Other work on these, or on what other functions
 * share with them, takes its turns while the disk is waited for. @throws GpuError
 */
export async function bring(
  context: RunContext,
  residency: Residency,
  plan: ColdStartPlan,
  layers: readonly number[],
  { signal, anatomy }: BringOptions,
): Promise<LoadResult> {
  const { weights } = residency;
  let bytes = 0;
  let fromDisk = false;
  const evicted = new AbortController();
  residency.brings.add(evicted);
  const either = signal === undefined ? evicted.signal : AbortSignal.any([signal, evicted.signal]);
  try {
    for (;;) {
      const missing = layers.filter((layer) => !residency.has(layer));
      using _lease = missing.length === 0 ? undefined : await weights.lease(missing, either);
      fromDisk ||= !weights.areFilled(missing);
      if (missing.length > 0) await orCancelled(weights.layerFilled(missing[0]!), either);
      const part = await bringFilled(context, residency, plan, layers, { signal: either, ...given({ anatomy }) });
      bytes += part.bytes;
      if (part.isAll) return { bytes, fromDisk };
    }
  } catch (error) {
    if (!evicted.signal.aborted) throw error;
    throw new GpuError('cancelled', `function '${weights.key}' was evicted while it was loaded`);
  } finally {
    residency.brings.delete(evicted);
  }
}

/** In one turn: up to the first layer that is still to be read. */
async function bringFilled(
  context: RunContext,
  residency: Residency,
  plan: ColdStartPlan,
  layers: readonly number[],
  { signal, anatomy = null }: BringOptions,
): Promise<{ readonly bytes: number; readonly isAll: boolean }> {
  const { weights } = residency;
  const turn = await residency.mutex.lock(signal);
  let lease: Disposable | undefined;
  let transfer: Transfer | undefined;
  const preempt = new AbortController();
  try {
    // The function may have been removed while this load waited for its turn.
    weights.checkKept();
    for (const layer of layers) residency.hold(layer);
    const missing = layers.filter((layer) => !residency.has(layer));
    const unread = missing.findIndex((layer) => !weights.isFilled(layer));
    const filled = unread < 0 ? missing : missing.slice(0, unread);
    if (filled.length === 0) return { bytes: 0, isAll: unread < 0 };
    residency.family.ahead = preempt;
    const either = AbortSignal.any([preempt.signal, ...(signal === undefined ? [] : [signal])]);
    lease = weights.use();
    await residency.reserve(filled, either);
    const decoding = await decodingOf(context, residency, filled);
    transfer = new Transfer(context, residency, plan, filled, decoding, anatomy);
    while (transfer.next !== undefined && !either.aborted) await transfer.submit();
    const isAll = unread < 0 && transfer.next === undefined;
    return { bytes: transfer.submittedBytes, isAll };
  } catch (error) {
    if (!preempt.signal.aborted || signal?.aborted === true) throw context.failed(error);
    return { bytes: transfer?.submittedBytes ?? 0, isAll: false };
  } finally {
    if (residency.family.ahead === preempt) residency.family.ahead = null;
    transfer?.close();
    turn[Symbol.dispose]();
    const streams = [...(transfer?.streams ?? [])];
    void Promise.allSettled(streams.map((stream) => stream.finished())).then(() => lease?.[Symbol.dispose]());
  }
}
