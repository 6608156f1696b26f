/**
 * Moves layers and constants to lower addresses until there are no holes between them. The moves are copies on the
 * execution stream: they come after all earlier work, which reads the old places, and all later work uses the new ones.
 * While a run is being submitted, constants stay in place, and so do layers of functions that run or load.
 */
import { CudaError, type DeviceAddress } from '../driver/types.ts';
import type { DeviceBlock, DevicePool } from './device-memory.ts';
import type { Fence, OrderedStream } from './streams.ts';

/** A block that would need more copies stays in place for now: nothing else can be submitted meanwhile. */
const copiesMax = 1024;

/** A layer whose block may move. */
interface MovableLayer {
  /** It must stay in place while a run is being submitted, which may read it. */
  readonly isFixed: boolean;
  /** When the bytes are there; null if none were copied yet. */
  ready: Fence | null;
  free(): number;
}

/** Memory of one GPU as {@link compact} sees it. */
export interface Compactable {
  readonly pool: DevicePool;
  readonly execution: OrderedStream;
  /** A run submits its work to the execution stream, with the addresses of its activations and constants. */
  readonly isSubmitting: boolean;
  /** The owner of each block of weights. */
  readonly owners: Map<DeviceBlock, MovableLayer>;
}

/** How a block moves down: in pieces as long as the distance, or through other memory in pieces as large as that. */
interface Move {
  readonly through: DeviceAddress | null;
  readonly step: number;
  readonly copies: number;
  readonly before: readonly Fence[];
}

/** Returns whether anything was moved. */
export function compact(lane: Compactable): boolean {
  const { pool, execution, owners } = lane;
  const moved: DeviceBlock[] = [];
  let isAny = false;
  try {
    for (const block of pool.blocks()) {
      const owner = owners.get(block);
      if (owner === undefined && block.purpose !== 'constants') continue;
      if (lane.isSubmitting && owner?.isFixed !== false) continue;
      const isEmpty = owner !== undefined && owner.ready === null;
      const move = bestMove(lane, block, isEmpty);
      if (move === undefined || move.copies > copiesMax) continue;
      const slide = pool.slideDown(block)!;
      isAny = true;
      try {
        execution.waitForAll([...slide.before, ...move.before]);
        if (owner === undefined) execution.waitForAll(block.fences);
        else execution.wait(owner.ready);
        if (!isEmpty) submitMove(lane, move, slide.from, block);
      } catch (error) {
        // The move failed midway, so its bytes are lost. Layers can be loaded again.
        if (owner === undefined) throw constantsLost(error);
        owner.free();
        throw error;
      }
      moved.push(block);
    }
  } finally {
    if (isAny) {
      const fence = execution.fence();
      for (const block of moved) {
        const owner = owners.get(block);
        const isFilled = owner !== undefined && owner.ready !== null;
        if (isFilled) owner.ready = fence;
        else block.fences = [fence];
      }
      pool.guardFree(fence);
    }
  }
  return isAny;
}

/** Programs share their constants, and each run would read what the failed move has left of them. */
function constantsLost(error: unknown): unknown {
  if (!(error instanceof CudaError)) return error;
  const { call, status, statusName, message } = error;
  return new CudaError('poisoned', call, status, statusName, `the constants of a program are lost: ${message}`);
}

/** The move with the fewest copies; undefined for a block that cannot move. */
function bestMove(lane: Compactable, block: DeviceBlock, isEmpty: boolean): Move | undefined {
  const way = lane.pool.wayDown(block);
  if (way === 0) return undefined;
  if (isEmpty) return { through: null, step: way, copies: 0, before: [] };
  const moves: Move[] = [{ through: null, step: way, copies: Math.ceil(block.bytes / way), before: [] }];
  const through = (address: DeviceAddress, bytes: number, before: readonly Fence[]): void => {
    moves.push({ through: address, step: bytes, copies: 2 * Math.ceil(block.bytes / bytes), before });
  };
  const free = lane.pool.freeAbove(block);
  if (free !== undefined) through(free.address, free.bytes, free.before);
  return moves.reduce((best, move) => (move.copies < best.copies ? move : best));
}

/** Source and destination overlap if the distance is shorter than the bytes: the low pieces go first. */
function submitMove(
  lane: Compactable,
  { through, step }: Move,
  from: DeviceAddress,
  { address: to, bytes }: DeviceBlock,
): void {
  const stream = lane.execution.cuda;
  for (let at = 0; at < bytes; at += step) {
    const piece = Math.min(step, bytes - at);
    if (through !== null) stream.copy(through, from + at, piece);
    stream.copy(to + at, through ?? from + at, piece);
  }
}
