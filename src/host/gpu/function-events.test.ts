import { expect, test } from 'vitest';
import { GpuError, type GpuErrorCode } from '../../gpu/index.ts';
import { eventOf } from './function-events.ts';

test.each<[GpuErrorCode, boolean]>([
  ['misuse', true],
  ['out-of-memory', true],
  ['host-memory', true],
  ['weights-unreadable', true],
  ['invalid', true],
  ['died', false],
  ['poisoned', false],
  ['device-lost', false],
  ['unavailable', false],
  ['cancelled', false],
])('a run that ends with %s counts against its function: %s', (code, counts) => {
  const event = eventOf({ kind: 'run failed', error: new GpuError(code, 'why') });
  expect(event).toEqual(counts ? { kind: 'run failed', reason: 'why' } : undefined);
});

test('a run that fails in the host itself does not count against its function', () => {
  expect(eventOf({ kind: 'run failed', error: new Error('its plans are gone') })).toBeUndefined();
});
