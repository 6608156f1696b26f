import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HangCheck } from './hang-check.ts';

interface Use {
  readonly usedMs: number;
  readonly state: string;
}

const idle = (usedMs: number): Use => ({ usedMs, state: 'S' });
const ready = (usedMs: number): Use => ({ usedMs, state: 'R' });

/** How often it is asked until it says that the process hangs, over these uses. */
function asksUntilOver(uses: readonly (Use | undefined)[], limitMs = 1000): number {
  const left = [...uses];
  const check = new HangCheck(0, limitMs, () => left.shift());
  for (let ask = 1; ; ask++) if (check.hangs()) return ask;
}

describe('a process without a sign', () => {
  test('hangs if it used nothing of a processor for a whole limit, and does not ask for one', () => {
    expect(asksUntilOver([idle(40), idle(40)])).toBe(2);
    expect(asksUntilOver([idle(40), idle(80), idle(80)])).toBe(3);
  });

  test('hangs if a processor has worked for it for as long as the limit', () => {
    expect(asksUntilOver([ready(40), ready(1040)])).toBe(2);
    expect(asksUntilOver([ready(0), ready(400), ready(999), ready(1000)])).toBe(4);
  });

  test('hangs if it is gone or stopped', () => {
    expect(asksUntilOver([undefined])).toBe(1);
    expect(asksUntilOver([ready(0), ready(10), undefined])).toBe(3);
  });

  test('is starved while it gets a little, or waits for a processor or a disk', () => {
    expect(asksUntilOver([idle(0), idle(10), ready(10), ready(10), idle(20), idle(20)])).toBe(6);
  });

  test('is given up after ten limits, whatever it does', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ usedMs: fc.nat(10_000), state: fc.constantFrom('R', 'S', 'D') }), { minLength: 20 }),
        (uses) => {
          expect(asksUntilOver(uses)).toBeLessThanOrEqual(11);
        },
      ),
    );
  });
});

describe.skipIf(process.platform !== 'linux')('a real process', () => {
  test('hangs at once if it is stopped, at the second look if it sleeps, and after its time if it computes', async () => {
    const script =
      'if (process.argv[1] === "busy") for (;;); setInterval(() => undefined, 1e9); process.stdout.write("up")';
    const start = async (what: string) => {
      const child = spawn(process.execPath, ['-e', script, what], { stdio: ['ignore', 'pipe', 'inherit'] });
      if (what !== 'busy') await once(child.stdout, 'data');
      return child;
    };
    const children = await Promise.all(['stopped', 'asleep', 'busy'].map(start));
    const [stopped, asleep, busy] = children.map(({ pid }) => new HangCheck(pid!, 50));
    try {
      children[0]!.kill('SIGSTOP');
      await expect.poll(() => stopped!.hangs()).toBe(true);
      await expect.poll(() => asleep!.hangs()).toBe(true);
      await expect.poll(() => busy!.hangs()).toBe(true);
    } finally {
      for (const child of children) child.kill('SIGKILL');
    }
  });
});
