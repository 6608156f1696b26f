import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { encodeMessage, FrameDecoder, tensorOf, type Message } from '../tensor/index.ts';
import { draws } from '../../test/support/draws.ts';
import { frameReader } from './channel.ts';

interface Numbered {
  readonly number: number;
}

const tensorsOfBytes = (bytes: number, number: number) =>
  bytes === 0 ? [] : [tensorOf('t', 'UINT8', [bytes], new Uint8Array(bytes).fill(number))];

/** As Node does it: reads of any size into the memory that the reader names, which is asked anew after each callback. */
function readAll(wire: Uint8Array, cuts: readonly number[], reader: ReturnType<typeof frameReader<Numbered>>): void {
  const memory = (): Uint8Array => (typeof reader.buffer === 'function' ? reader.buffer() : reader.buffer);
  let space = memory();
  for (let at = 0, read = 0; at < wire.byteLength; read++) {
    const bytes = Math.min(space.byteLength, cuts[read % cuts.length]!, wire.byteLength - at);
    space.set(wire.subarray(at, at + bytes));
    reader.callback(bytes, space);
    at += bytes;
    space = memory();
  }
}

const unreadable = (reason: string): void => expect.unreachable(reason);

afterEach(() => vi.restoreAllMocks());

test('a message whose reader throws is an error of its own: all others arrive whole, however they were cut', () => {
  const frame = fc.record({ bytes: fc.constantFrom(0, 1, 40_000, 100_000, 200_000), throws: fc.boolean() });
  fc.assert(
    fc.property(
      fc.array(frame, { minLength: 1, maxLength: 12 }),
      fc.array(fc.integer({ min: 1, max: 200_000 }), { minLength: 1, maxLength: 5 }),
      (frames, cuts) => {
        const later: (() => void)[] = [];
        vi.spyOn(process, 'nextTick').mockImplementation((act) => void later.push(act as () => void));
        const wire = Buffer.concat(
          frames.flatMap(({ bytes }, number) =>
            encodeMessage({ header: { number }, tensors: tensorsOfBytes(bytes, number) }),
          ),
        );
        const arrived: { number: number; bytes: number }[] = [];
        const message = ({ header: { number }, tensors }: Message<Numbered>): void => {
          const data = tensors[0]?.data ?? new Uint8Array();
          expect(Buffer.compare(data, new Uint8Array(data.byteLength).fill(number))).toBe(0);
          arrived.push({ number, bytes: data.byteLength });
          if (frames[number]!.throws) throw new Error(`of ${number}`);
        };
        readAll(wire, cuts, frameReader(new FrameDecoder<Numbered>(), { message, unreadable }));
        expect(arrived).toEqual(frames.map(({ bytes }, number) => ({ number, bytes })));
        const thrown = frames.flatMap(({ throws }, number) => (throws ? [`of ${number}`] : []));
        expect(later).toHaveLength(thrown.length);
        for (const [at, act] of later.entries()) expect(act).toThrow(thrown[at]);
      },
    ),
    { numRuns: draws(10) },
  );
});
