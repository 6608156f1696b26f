import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MemoryLedger, type MeasuredInstance } from './ledger.ts';

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => vi.useRealTimers());

/** A process with one session, which loads or not. */
const processOf = (pid: number) => ({
  pid,
  hasStarted: true,
  isLoading: false,
  sessions: 1,
  onDead: () => () => undefined,
});

test("what a load takes at its peak is nobody else's lack of room", async () => {
  const bytes = new Map([[1, 300]]);
  let measured = 0;
  const ledger = new MemoryLedger(
    (pid) => Promise.resolve(bytes.get(pid)),
    () => measured++,
  );
  const instance = processOf(1);
  ledger.add(instance satisfies MeasuredInstance);
  const blankBytes = ledger.blankBytes;
  instance.isLoading = true;
  ledger.change(instance, 100);
  await vi.advanceTimersByTimeAsync(6000);
  expect(measured).toBeGreaterThan(0);
  expect(ledger.usedBytes).toBe(blankBytes + 100);
  instance.isLoading = false;
  bytes.set(1, 120);
  ledger.change(instance, -5);
  await vi.advanceTimersByTimeAsync(6000);
  expect(ledger.usedBytes).toBe(120);
  ledger.stop();
});

test('a load that begins while its process is measured does not count with its peak either', async () => {
  const instance = processOf(1);
  const ledger = new MemoryLedger(
    () => {
      instance.isLoading = true;
      return Promise.resolve(300);
    },
    () => undefined,
  );
  ledger.add(instance);
  await vi.advanceTimersByTimeAsync(6000);
  expect(ledger.usedBytes).toBe(ledger.blankBytes);
  ledger.stop();
});
