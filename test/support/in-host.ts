import type { Engine } from '../../src/gpu/engine/engine.ts';
import { GpuError } from '../../src/gpu/types.ts';

/**
 * Has a function in pinned host memory, as the scheduler would before a run: where there is no room, others leave, those
 * first that were registered first.
 */
export async function inHost(engine: Engine, key: string): Promise<void> {
  for (;;) {
    const staged = await engine.stage(key);
    if (staged.kind === 'staged') return;
    const other = engine.hostState().functions.find((each) => each.key !== key && each.host.bytes > 0);
    if (other === undefined) throw new GpuError('host-memory', `there is no room for '${key}'`);
    await engine.drop(other.key);
  }
}
