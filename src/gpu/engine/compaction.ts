/**
 * Moves layers to lower addresses until no hole lies between them. The moves are copies on the execution stream: they come
 * after everything that was submitted before and reads the old places, and all that is submitted later knows the new ones.
 * Layers whose run or load is just being submitted stay where they are.
 */
import type { DeviceAddress } from '../driver/types.ts';
import type { GpuLane } from './lane.ts';

/** Over a shorter way the bytes go through the activations' memory, which is free between runs, in pieces of its size. */
const directWayBytesMin = 64 * 1024;

/** True when anything was moved. */
export function compact(lane: GpuLane): boolean {
  const { pool, execution, owners } = lane;
  const moved = [];
  for (const block of pool.blocks()) {
    const owner = owners.get(block);
    if (owner === undefined || owner.residency.isFixed) continue;
    const slide = pool.slideDown(block);
    if (slide === undefined) continue;
    execution.waitForAll(slide.before);
    execution.wait(owner.residency.ready(owner.layer));
    slideBytes(lane, slide.from, block.address, block.bytes);
    moved.push(owner);
  }
  if (moved.length === 0) return false;
  const fence = execution.fence();
  for (const { residency, layer } of moved) residency.setReady(layer, fence);
  pool.guardFree(fence);
  return true;
}

/** Source and destination overlap where the way is shorter than the bytes: they go in pieces, the low ones first. */
function slideBytes(lane: GpuLane, from: DeviceAddress, to: DeviceAddress, bytes: number): void {
  const stream = lane.execution.cuda;
  const way = from - to;
  const { scratch } = lane;
  const isDetour =
    way < bytes && way < directWayBytesMin && scratch !== null && scratch.bytes > way && !lane.mutex.isTaken;
  const step = isDetour ? scratch.bytes : way;
  for (let at = 0; at < bytes; at += step) {
    const piece = Math.min(step, bytes - at);
    if (isDetour) stream.copy(scratch.address, from + at, piece);
    stream.copy(to + at, isDetour ? scratch.address : from + at, piece);
  }
}
