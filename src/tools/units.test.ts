import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatBytes, formatDuration, formatMs, missingUnit, parseDurationMs, parseSizeBytes } from './units.ts';

test.each([
  ['250ms', 250],
  ['1.5s', 1500],
  ['30 s', 30_000],
  ['5m', 300_000],
  ['1h', 3_600_000],
  [40, 40],
  [0, 0],
  ['0', 0],
])('the duration %j is %d ms', (written, milliseconds) => {
  expect(parseDurationMs(written)).toBe(milliseconds);
});

test.each([
  '',
  's',
  '-5s',
  '5 parsecs',
  '1e3s',
  '5S',
  '40',
  '1.5',
  ' 7 ',
  'constructor',
  -1,
  NaN,
  Infinity,
  null,
  ['5s'],
  '1s2',
])('the duration %j is refused', (written) => {
  expect(parseDurationMs(written)).toBeUndefined();
});

test('text without a unit is answered with what it may mean, unless it is 0', () => {
  expect(missingUnit('100')).toBe('it lacks a unit: 100ms or 100s?');
  fc.assert(
    fc.property(fc.oneof(fc.nat(), fc.double({ min: 0, max: 1e6, noNaN: true })), (value) => {
      const text = value.toFixed(3);
      expect(parseDurationMs(text)).toBe(Number(text) === 0 ? 0 : undefined);
      expect(missingUnit(text) === undefined).toBe(Number(text) === 0);
      expect(parseDurationMs(`${text}ms`)).toBe(Number(text));
    }),
  );
  for (const said of ['100ms', 'soon', '', 100, undefined]) expect(missingUnit(said)).toBeUndefined();
});

test.each([
  ['64MiB', 67_108_864],
  ['10MB', 10_000_000],
  ['1.5KiB', 1536],
  ['16GiB', 17_179_869_184],
  [1024, 1024],
])('the size %j is %d bytes', (written, bytes) => {
  expect(parseSizeBytes(written)).toBe(bytes);
});

test('every whole duration survives writing and reading', () => {
  fc.assert(
    fc.property(fc.nat(), (milliseconds) => {
      expect(parseDurationMs(formatDuration(milliseconds))).toBe(milliseconds);
    }),
  );
});

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [12.789768185451639, '13 B'],
  [999.49, '999 B'],
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
