/** Damaged frames: each is refused with a sentence, and none makes the reader reserve memory that it only claims. */
import { expect, test } from 'vitest';
import { decodeMessage, encodeMessage, FrameDecoder } from './frame.ts';

function frame(header: unknown, tensorBytes: number, payload = Buffer.alloc(0)): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(12);
  prefix.writeUInt32LE(json.byteLength, 0);
  prefix.writeBigUInt64LE(BigInt(tensorBytes), 4);
  return Buffer.concat([prefix, json, payload]);
}

test.each([
  ['nothing in the place of a tensor', [null], /has no name/],
  ['a tensor without a size', [{ name: 'x', datatype: 'FP32', shape: [1] }], /no binary_data_size/],
  [
    'a shape that is none',
    [{ name: 'x', datatype: 'FP32', shape: '1', parameters: { binary_data_size: 4 } }],
    /no shape/,
  ],
  [
    'a size below zero',
    [{ name: 'x', datatype: 'FP32', shape: [1], parameters: { binary_data_size: -4 } }],
    /no shape or/,
  ],
])('a header with %s is refused as that', (_, tensors, reason) => {
  expect(() => decodeMessage(frame({ tensors }, 4, Buffer.alloc(4)))).toThrow(reason);
});

test('a frame that claims two gigabytes reserves a fraction of them before they come', () => {
  const before = process.memoryUsage().arrayBuffers;
  const decoder = new FrameDecoder();
  decoder.push(frame({ op: 'run' }, 2e9));
  decoder.push(Buffer.alloc(10));
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(200e6);
});

test('a frame larger than the first reservation arrives as it was sent', () => {
  const payload = Buffer.alloc(144 * 2 ** 20, 'abcdefg');
  const described = { name: 'x', datatype: 'UINT8', shape: [payload.byteLength] };
  const tensors = [{ ...described, parameters: { binary_data_size: payload.byteLength } }];
  const whole = frame({ tensors }, payload.byteLength, payload);
  const decoder = new FrameDecoder();
  const messages = [];
  for (let at = 0; at < whole.byteLength; at += 2 ** 20)
    messages.push(...decoder.push(whole.subarray(at, at + 2 ** 20)));
  expect(messages).toHaveLength(1);
  expect(payload.equals(messages[0]!.tensors[0]!.data)).toBe(true);
});

const numbered = (run: number, text = 'run'): Buffer =>
  Buffer.concat(
    encodeMessage({ header: { text }, tensors: [{ name: 'x', datatype: 'UINT8', shape: [1], data: Buffer.of(run) }] }),
  );

test('a repeated header is parsed once, and gets the tensors that came with it', () => {
  const decoder = new FrameDecoder();
  const messages = [1, 2, 3].flatMap((run) => decoder.push(numbered(run)));
  expect(messages.map(({ tensors }) => tensors[0]!.data[0])).toEqual([1, 2, 3]);
  expect(messages[1]!.header).toBe(messages[0]!.header);
  expect(messages[2]!.header).toEqual({ text: 'run' });
});

test('a repeated header is refused in front of other bytes than it names', () => {
  const decoder = new FrameDecoder();
  decoder.push(numbered(1));
  const longer = Buffer.concat([numbered(2), Buffer.of(0)]);
  longer.writeUInt32LE(2, 4);
  expect(() => decoder.push(longer)).toThrow('1 bytes follow the last tensor of a message');
});

test('thousands of different headers, some repeated, are each read right', () => {
  const decoder = new FrameDecoder();
  for (let run = 0; run < 3000; run++) {
    const text = run % 3 === 0 ? 'again' : `number ${run}`;
    expect(decoder.push(numbered(run % 256, text))).toMatchObject([
      { header: { text }, tensors: [{ data: { 0: run % 256 } }] },
    ]);
  }
});
