import { expect, test } from 'vitest';
import { DecodeChecks, LaneDecoding } from './coded-layers.ts';
import type { DeviceBlock } from './device-memory.ts';
import type { IoBuffers } from './pinned-pool.ts';

/** Checks of a transfer of these layers, and their words, which are the kernel's to write. */
async function checksOf(...blocks: readonly DeviceBlock[]) {
  const words = new Uint32Array(blocks.length);
  const buffer = { address: 0, view: new Uint8Array(words.buffer), [Symbol.dispose]: () => undefined };
  const io: Pick<IoBuffers, 'allocate'> = { allocate: () => Promise.resolve(buffer) };
  return { words, checks: await DecodeChecks.of(io as IoBuffers, blocks) };
}

test('a layer that was repaired is not found wrong again by the transfer that brought it, but by a later one', async () => {
  const decoding = new LaneDecoding();
  const [block, other] = [{}, {}] as DeviceBlock[];
  const first = await checksOf(block!, other!);
  decoding.begin(first.checks);
  const run = decoding.follow(() => [block!, other!]);
  const late = decoding.follow(() => [block!]);
  first.words[0] = 1;
  expect(run.wrong()).toBe(1);
  expect([decoding.isWrong(block!), decoding.isWrong(other!)]).toEqual([true, false]);
  decoding.repaired(block!);
  expect(decoding.follow(() => [block!, null]).wrong()).toBe(0);
  // Its words are looked at once more at its end, and by a run that had read the layer before: that one is made again.
  await decoding.end(first.checks, []);
  expect(late.wrong()).toBe(1);
  expect(decoding.isWrong(block!)).toBe(false);
  const second = await checksOf(block!);
  decoding.begin(second.checks);
  second.words[0] = 1;
  decoding.find();
  expect(decoding.isWrong(block!)).toBe(true);
});
