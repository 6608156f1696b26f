import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { expect, test } from 'vitest';
import { coreWaitMs } from '../tools/index.ts';
import { longWorkMs, runInSlices, type Steps } from './steps.ts';

/** Works until it has waited for a core for so long. */
function* starved(forMs: number): Steps<string> {
  for (const untilMs = coreWaitMs() + forMs; coreWaitMs() < untilMs;) yield;
  return 'done';
}

test.skipIf(!existsSync('/proc/self/schedstat'))(
  'long work takes the time for which it had a core, however long other programs had it',
  async () => {
    const others = Array.from({ length: availableParallelism() + 1 }, () =>
      spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
    );
    try {
      const [startMs, waitedMs, workedMs] = [performance.now(), coreWaitMs(), longWorkMs()];
      expect(await runInSlices(starved(100))).toBe('done');
      const heldMs = performance.now() - startMs - (coreWaitMs() - waitedMs);
      expect(longWorkMs() - workedMs).toBeGreaterThan(0);
      expect(longWorkMs() - workedMs).toBeLessThanOrEqual(heldMs);
    } finally {
      for (const other of others) other.kill('SIGKILL');
    }
  },
);
