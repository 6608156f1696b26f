/** Copies coded layers that arrived wrong once more, as they are in their files. */
import type { Residency } from './residency.ts';
import type { RunContext } from './run-context.ts';
import { WeightReader } from '../program/weight-reader.ts';

/** So many bytes are copied at once. */
const pieceBytes = 16 * 2 ** 20;

/** For a caller that has the residency's turn. @throws GpuError 'weights-unreadable' */
export async function repair(context: RunContext, residency: Residency): Promise<void> {
  const { lane, weights } = residency;
  // Another function may have brought some that this one has never run with.
  const wrong = weights.all.filter((layer) => lane.decoding.isWrong(residency.block(layer)));
  if (wrong.length === 0) return;
  const { execution } = lane;
  await using reader = new WeightReader();
  for (const layer of wrong) {
    const block = residency.block(layer)!;
    execution.wait(residency.ready(layer));
    for (const weight of weights.layout.weights.filter((each) => each.layer === layer)) {
      for (let at = 0; at < weight.bytes; at += pieceBytes) {
        const bytes = Math.min(pieceBytes, weight.bytes - at);
        using buffer = await context.io.allocate(bytes);
        await reader.read(weight, at, buffer.view);
        execution.cuda.copy(block.address + weight.byteOffset + at, buffer.address, bytes);
        await execution.finished();
      }
    }
    residency.setReady(layer, execution.fence());
    lane.decoding.repaired(block);
    context.layersRepaired++;
  }
}
