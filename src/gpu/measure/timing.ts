/** Times work on a GPU's clock. The caller must hold the lane. */
import type { IoBuffers } from '../engine/pinned-pool.ts';
import type { GpuLane } from '../engine/lane.ts';
import type { OrderedStream } from '../engine/streams.ts';
import type { MeasuredSpread } from './types.ts';
import type { Program, ProgramTensor } from '../program/types.ts';

/** Milliseconds of each piece of work, one after the other. The stream must be idle before. */
export async function timed(lane: GpuLane, stream: OrderedStream, work: readonly (() => void)[]): Promise<number[]> {
  const timers = Array.from({ length: work.length + 1 }, () => lane.timer());
  // Work on the other stream would disturb, and a copy must not overwrite what a kernel still reads.
  stream.wait(lane.load.fence());
  stream.wait(lane.execution.fence());
  stream.cuda.record(timers[0]!);
  for (const [index, submit] of work.entries()) {
    submit();
    stream.cuda.record(timers[index + 1]!);
  }
  await stream.finished();
  const times = work.map((_, index) => timers[index + 1]!.msSince(timers[index]!));
  lane.giveTimers(timers);
  return times;
}

/** Copies a program's inputs into its scratch memory, which must be reserved. */
export async function putInputs(
  lane: GpuLane,
  io: IoBuffers,
  program: Program,
  dataOf: (tensor: ProgramTensor) => Uint8Array,
): Promise<void> {
  for (const tensor of program.inputs) {
    if (tensor.bytes === 0) continue;
    using buffer = await io.allocate(tensor.bytes);
    buffer.view.set(dataOf(tensor));
    lane.execution.cuda.copy(lane.scratch!.address + tensor.byteOffset, buffer.address, tensor.bytes);
    await lane.execution.finished();
  }
}

export function spreadOf(times: readonly number[]): MeasuredSpread {
  const sorted = times.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const medianMs = sorted.length % 2 === 1 ? sorted[middle]! : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
  return { medianMs, minMs: sorted[0] ?? 0, maxMs: sorted.at(-1) ?? 0 };
}
