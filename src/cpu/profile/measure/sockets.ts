import { readLogicalCores } from '../../../hardware/index.ts';
import { CoreAllocator } from '../../pool/cores.ts';

/** The cores that pools of `limit` cores would have, by socket: the operating system's numbers. */
export function poolSockets(limit: number): number[][] {
  const allocator = new CoreAllocator(readLogicalCores(), limit);
  const ids = allocator.unleased();
  return allocator.perSocket.map((count) => ids.splice(0, count));
}
