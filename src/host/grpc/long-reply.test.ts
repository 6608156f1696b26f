/** Long replies are the same messages as protobufjs makes, from where their outputs are. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LongReply, longReplyOf } from './long-reply.ts';
import type { ModelInferResponse } from './messages.ts';
import { loadProtos, serviceOf } from './protos.ts';

const { responseSerialize, responseDeserialize } = serviceOf(loadProtos(), 'inference', 'GRPCInferenceService').service[
  'ModelInfer'
]!;

const responseOf = (sizes: readonly number[]): ModelInferResponse => ({
  model_name: 'wide',
  model_version: '1',
  id: 'asked',
  outputs: sizes.map((size, index) => ({ name: `y${index}`, datatype: 'UINT8', shape: [size] })),
  raw_output_contents: sizes.map((size, index) => new Uint8Array(size).fill(index + 1)),
});

/** Its fields, and the bytes of its outputs in one buffer: an assertion would compare them one by one. */
function read(message: Buffer): { readonly fields: object; readonly bytes: Buffer } {
  const { raw_output_contents: outputs, ...fields } = responseDeserialize(message) as ModelInferResponse;
  return { fields: { ...fields, sizes: outputs.map(({ byteLength }) => byteLength) }, bytes: Buffer.concat(outputs) };
}

test('a long reply is the message that protobufjs would make, with its head, and holds its outputs uncopied', () => {
  const sizes = fc.array(fc.nat(70_000), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(sizes, fc.integer({ min: 999, max: 99_999 }), (outputs, pieceBytes) => {
      const response = responseOf([...outputs, 65_536]);
      const reply = longReplyOf(response, responseSerialize)!;
      const pieces = [...reply.pieces(pieceBytes)];
      expect(pieces.slice(0, -1).every(({ byteLength }) => byteLength === pieceBytes)).toBe(true);
      const bytes = Buffer.concat(pieces);
      expect(bytes.byteLength).toBe(reply.length);
      expect(bytes.readUInt8(0)).toBe(0);
      expect(bytes.readUInt32BE(1)).toBe(bytes.byteLength - 5);
      const [made, whole] = [read(bytes.subarray(5)), read(responseSerialize(response))];
      expect(made.fields).toEqual(whole.fields);
      expect(made.bytes.equals(whole.bytes)).toBe(true);
      expect(response.raw_output_contents.every((output) => reply.parts.includes(output))).toBe(true);
    }),
  );
});

test('short replies, and messages of streams and other methods, are left to protobufjs', () => {
  expect(longReplyOf(responseOf([1000, 64_000]), responseSerialize)).toBeUndefined();
  expect(longReplyOf({ infer_response: responseOf([100_000]) }, responseSerialize)).toBeUndefined();
  expect(longReplyOf({ live: true }, responseSerialize)).toBeUndefined();
});

test('a reply without a byte has no pieces', () => {
  expect([...new LongReply([new Uint8Array()]).pieces(10)]).toEqual([]);
});
