import { expect, test } from 'vitest';
import { divideMemory } from '../../hardware/index.ts';
import { MemoryBudgets } from './memory-budgets.ts';

const nothingHeld = () => ({ sessions: 0, inFlight: 0, pinned: 0 });

function budgets() {
  const budget = divideMemory(8e9, 'host with GPUs', { pinned: 1600, sessions: 3200 });
  const lines: string[] = [];
  const shrunk: [string, number][] = [];
  const held = new MemoryBudgets({
    budget,
    held: nothingHeld,
    logger: { warn: (_fields: unknown, text?: unknown) => void lines.push(String(text)) },
    onKill: () => undefined,
    onChange: (part, bytes) => {
      if (shrunk.at(-1)?.[1] !== bytes) shrunk.push([part, bytes]);
    },
  });
  held.close();
  return { held, lines, shrunk, budget };
}

test('a GPU process that was ended for memory halves what is pinned, down to a sixteenth', () => {
  const { held, shrunk, lines } = budgets();
  for (let kill = 0; kill < 6; kill++) held.killed({ pid: kill, purpose: 'pinned' });
  expect(shrunk.filter(([part]) => part === 'pinned')).toEqual([800, 400, 200, 100].map((bytes) => ['pinned', bytes]));
  expect(held.parts.pinned).toBe(100);
  expect(held.killCounts.get('pinned')).toBe(6);
  expect(lines[0]).toMatch(
    /^the kernel ended a process for pinned host memory .*was 1\.6 KB and is 800 B from now on$/,
  );
  expect(lines[5]).toMatch(/stays at its least, 100 B$/);
});

test('an instance that was ended for memory halves what sessions may take', () => {
  const purpose = 'sessions';
  const { held, shrunk } = budgets();
  held.killed({ pid: 7, purpose });
  expect(shrunk).toContainEqual(['sessions', 1600]);
  expect(held.parts.pinned).toBe(1600);
  expect(held.kills).toMatchObject([{ pid: 7, part: purpose }]);
});

test.each(['validators', undefined, 'constructor'])('a process for %s leaves every budget as it is', (purpose) => {
  const { held, shrunk, lines, budget } = budgets();
  held.killed({ pid: 7, purpose });
  expect(shrunk).toEqual([]);
  expect(held.parts).toEqual(budget.parts);
  expect(lines).toHaveLength(1);
});

test('memory is divided anew when the limit of the control group changes, and what was set stays', () => {
  let ownBytes = 4e9;
  const changes: [string, number][] = [];
  const lines: string[] = [];
  const held = new MemoryBudgets({
    budget: divideMemory(ownBytes, 'host with GPUs', { pinned: 1e9 }),
    logger: { warn: (_fields: unknown, text?: unknown) => void lines.push(String(text)) },
    held: nothingHeld,
    ownBytes: () => ownBytes,
    onKill: () => undefined,
    onChange: (part, bytes) => changes.push([part, bytes]),
  });
  held.close();
  held.look();
  expect(changes).toEqual([]);
  held.killed({ pid: 1, purpose: 'pinned' });
  ownBytes = 2e9;
  held.look();
  const { sessions } = divideMemory(2e9, 'host with GPUs', { pinned: 1e9 }).parts;
  expect(changes.slice(-2)).toEqual([
    ['sessions', sessions],
    ['pinned', 1e9],
  ]);
  expect(held.totalBytes).toBe(2e9);
  expect(lines.at(-1)).toBe('this host may use 2 GB instead of 4 GB: memory is divided anew');
});

test('pinned memory of a larger machine comes down at once, and the parts that it had left nothing get their share', () => {
  const held = new MemoryBudgets({
    budget: divideMemory(1.2e9, 'host with GPUs', { pinned: 12e9 }),
    held: nothingHeld,
    logger: { warn: () => undefined },
    onKill: () => undefined,
    onChange: () => undefined,
  });
  held.close();
  const usual = divideMemory(1.2e9, 'host with GPUs').parts;
  const before = held.parts.sessions;
  for (let kill = 0; kill < 2; kill++) held.killed({ pid: kill, purpose: 'pinned' });
  expect(held.parts.pinned).toBe(3e8);
  expect(held.parts.sessions).toBeGreaterThan(before);
  expect(held.parts.sessions).toBe(usual.sessions);
  expect(Object.values(held.parts).reduce((sum, bytes) => sum + bytes, 0)).toBeLessThan(1.2e9);
});

test('a preparer that was ended for memory halves what loads may take, and sessions keep theirs', () => {
  const { held, budget } = budgets();
  held.killed({ pid: 7, purpose: 'loads' });
  expect(held.parts).toEqual({ ...budget.parts, loads: Math.floor(budget.parts.loads / 2) });
});

test('what is used is told by part: what owners count, and the host by its process less the bodies that it holds', () => {
  const inFlight = 3_000_000;
  const held = new MemoryBudgets({
    budget: divideMemory(8e9, 'host'),
    held: () => ({ sessions: 709e6, inFlight, pinned: 0 }),
    logger: { warn: () => undefined },
    onKill: () => undefined,
    onChange: () => undefined,
  });
  held.close();
  const { parts, processes } = held.used();
  expect(parts).toMatchObject({ sessions: 709e6, inFlight, validators: 0, loads: 0 });
  const own = processes.find(({ pid }) => pid === process.pid)!;
  expect(own).toMatchObject({ part: 'host' });
  expect(parts.host).toBe(own.residentBytes - inFlight);
});

test('a host that holds more than its part collects its garbage, and again once there may be as much', () => {
  let [residentBytes, inFlight, collected] = [0, 0, 0];
  const budget = divideMemory(700 * 2 ** 20, 'host');
  const held = new MemoryBudgets({
    budget,
    held: () => ({ ...nothingHeld(), inFlight }),
    ownBytes: () => budget.totalBytes,
    memory: {
      collect: () => void collected++,
      trim: () => (residentBytes = 150e6),
      residentBytes: () => residentBytes,
    },
    logger: { warn: () => undefined },
    onKill: () => undefined,
    onChange: () => undefined,
  });
  held.close();
  const lookAt = (bytes: number): number => {
    residentBytes = bytes;
    held.look();
    return collected;
  };
  expect(lookAt(budget.parts.host)).toBe(0);
  inFlight = 200e6;
  expect(lookAt(300e6)).toBe(0);
  inFlight = 0;
  expect(lookAt(300e6)).toBe(1);
  // It cannot hold less: trying again and again would only cost time.
  expect(lookAt(180e6)).toBe(1);
  expect(lookAt(190e6)).toBe(2);
});
