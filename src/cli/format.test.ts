import { expect, test } from 'vitest';
import { formatBytes, formatMs } from './format.ts';

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1_340_000_000, '1.34 GB'],
  [999_600, '1 MB'],
])('%d bytes read as %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

test.each([
  [0.0421, '0.042 ms'],
  [35, '35 ms'],
  [999.7, '1 s'],
  [1234, '1.23 s'],
  [185_000, '3 min 5 s'],
])('%d ms read as %s', (milliseconds, text) => {
  expect(formatMs(milliseconds)).toBe(text);
});
