import fc from 'fast-check';
import { expect, test } from 'vitest';
import { lendOut } from './frame.ts';
import { bytesToKeep, Lent } from './lent.ts';
import { keepTensors, SpentBuffers } from './spent.ts';
import { bytesToSend, dataBytes, type Tensor } from './tensor.ts';

const large = 70_000;

/** A message of tensors of these sizes in one memory, which is overwritten as soon as it is released. */
function messageOf(sizes: readonly number[]) {
  const memory = new Uint8Array(sizes.reduce((sum, bytes) => sum + bytes, 0));
  let releases = 0;
  let at = 0;
  const tensors = sizes.map((bytes, index): Tensor => {
    const data = memory.subarray(at, (at += bytes)).fill(index + 1);
    return { name: `x${index}`, datatype: 'UINT8', shape: [bytes], data };
  });
  const release = (): void => {
    releases++;
    memory.fill(255);
  };
  return { message: lendOut({ header: {}, tensors, release }), memory, releases: () => releases };
}

const endOfTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
const lentBytes = (tensor: Tensor | undefined): Lent => bytesToSend(tensor!) as Lent;

test('each reader of lent tensors sees what was sent, in whatever order they are read, sent or left until later', async () => {
  const step = fc.record({ bytes: fc.constantFrom(3, 1000, large, 2 * large), use: fc.nat(3), when: fc.nat(100) });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 6 }), async (steps) => {
      const { message, releases } = messageOf(steps.map(({ bytes }) => bytes));
      const order = [...steps.keys()].sort((a, b) => steps[a]!.when - steps[b]!.when);
      const expectSent = (data: Uint8Array, at: number): void => {
        expect([data.byteLength, data[0], data.at(-1)]).toEqual([steps[at]!.bytes, at + 1, at + 1]);
      };
      for (const at of order) {
        const tensor = message.tensors[at]!;
        expect(dataBytes(tensor)).toBe(steps[at]!.bytes);
        const part = bytesToSend(tensor);
        if (steps[at]!.use === 0) expectSent(tensor.data, at);
        if (steps[at]!.use === 1) expectSent(bytesToKeep(part), at);
        if (steps[at]!.use === 2 && part instanceof Lent) {
          expectSent(part.use(), at);
          part.end();
        }
      }
      await endOfTurn();
      expect(releases()).toBe(1);
      for (const at of order) if (steps[at]!.use !== 2) expectSent(message.tensors[at]!.data, at);
    }),
  );
});

test('a lent tensor that was sent is copied nowhere, and refuses to be read later', async () => {
  const { message, memory, releases } = messageOf([large]);
  const lent = lentBytes(message.tensors[0]);
  expect(lent.use().buffer).toBe(memory.buffer);
  // Its socket has not taken all of it.
  await endOfTurn();
  expect([releases(), lent.copy]).toEqual([0, undefined]);
  lent.end();
  lent.end();
  expect([releases(), lent.copy]).toEqual([1, undefined]);
  expect(() => message.tensors[0]!.data).toThrow('after its memory was given back');
});

test('a lent tensor that a check keeps while it is sent stays in place until it is sent', () => {
  const { message, releases } = messageOf([large]);
  const lent = lentBytes(message.tensors[0]);
  const place = lent.use();
  keepTensors(message.tensors);
  expect([releases(), place[0]]).toEqual([0, 1]);
  lent.end();
  expect([releases(), message.tensors[0]!.data[0]]).toEqual([1, 1]);
});

test('what a call leaves of lent tensors is freed: their copies, but those that a check keeps', () => {
  const { message } = messageOf([large, large, large]);
  const [sent, copied, kept] = message.tensors;
  const spent = new SpentBuffers();
  spent.addTensors(message.tensors);
  expect(spent.isEmpty).toBe(false);
  lentBytes(sent).use();
  lentBytes(sent).end();
  const copy = bytesToKeep(bytesToSend(copied!));
  keepTensors([kept!]);
  expect(spent.free()).toBe(2 * large);
  expect([copy.byteLength, kept!.data.byteLength]).toEqual([0, large]);
});

test('a message without lent memory, or whose tensors were dropped, stays as it is', () => {
  const message = { header: {}, tensors: [], whyDropped: new Error('no room') };
  expect(lendOut(message)).toBe(message);
});
