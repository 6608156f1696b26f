import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NativeArena, readInteger64, readText, readTextAt, writeInteger64, type NativeBlock } from './native-memory.ts';
import { contextOf } from './memory.ts';
import type { ContextMemory } from './session.ts';

test('integers of up to 53 bits keep their value as 64 bits', () => {
  const data = new DataView(new ArrayBuffer(8));
  fc.assert(
    fc.property(fc.maxSafeInteger(), (value) => {
      writeInteger64(data, 0, value);
      expect(data.getBigInt64(0, true)).toBe(BigInt(value));
    }),
  );
});

test('addresses are read back as they were written', () => {
  const data = new DataView(new ArrayBuffer(16));
  fc.assert(
    fc.property(fc.maxSafeNat(), (address) => {
      writeInteger64(data, 8, address);
      expect(readInteger64(data, 8)).toBe(address);
    }),
  );
});

test('blocks do not overlap, are aligned to 16 bytes, and are zero when allocated', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.integer({ min: 1, max: 100_000 }), fc.boolean()), { maxLength: 60 }), (steps) => {
      const arena = new NativeArena();
      const held: NativeBlock[] = [];
      for (const [bytes, release] of steps) {
        const block = arena.allocate(bytes);
        expect(block.address % 16).toBe(0);
        const content = new Uint8Array(block.data.buffer, block.data.byteOffset, bytes);
        expect(content.every((value) => value === 0)).toBe(true);
        content.fill(0xff);
        for (const other of held) {
          expect(block.address + bytes <= other.address || other.address + other.bytes <= block.address).toBe(true);
        }
        if (release) block.release();
        else held.push(block);
      }
      arena.release();
    }),
    { numRuns: 30 },
  );
});

test('a block that was released twice is allocated again only once', () => {
  const arena = new NativeArena();
  const block = arena.allocate(100);
  block.release();
  block.release();
  const [first, second] = [arena.allocate(100), arena.allocate(100)];
  expect(first.address).toBe(block.address);
  expect(second.address).not.toBe(block.address);
});

test('texts are read back from their block and by address', () => {
  const arena = new NativeArena();
  const block = arena.allocateText('layernorm_Ünïcode');
  expect(readText(block)).toBe('layernorm_Ünïcode');
  expect(readTextAt(block.address)).toBe('layernorm_Ünïcode');
});

test('the owner of an address is the device whose memory it lies in', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.record({ bytes: fc.integer({ min: 1, max: 1000 }), context: fc.constantFrom(1, 2, 3), keep: fc.boolean() }),
      ),
      fc.nat({ max: 60_000 }),
      (allocations, address) => {
        const memories = new Set<ContextMemory>();
        const owners = new Map<number, number>();
        let next = 1000;
        for (const { bytes, context, keep } of allocations) {
          if (keep) {
            memories.add({ address: next, bytes, context });
            for (let at = next; at < next + bytes; at++) owners.set(at, context);
          }
          next += bytes + 10;
        }
        expect(contextOf(memories, address)).toBe(owners.get(address) ?? 0);
      },
    ),
  );
});
