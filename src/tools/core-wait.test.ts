import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { expect, test } from 'vitest';
import { coreWaitMs } from './core-wait.ts';

test.skipIf(!existsSync('/proc/self/schedstat'))(
  'the wait for a core grows while other programs fill all cores',
  () => {
    const before = coreWaitMs();
    const others = Array.from({ length: availableParallelism() + 1 }, () =>
      spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
    );
    try {
      // It ends: this thread is one more than there are cores.
      while (coreWaitMs() < before + 1);
    } finally {
      for (const other of others) other.kill('SIGKILL');
    }
    expect(coreWaitMs()).toBeGreaterThan(before);
  },
);
