import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { pinThread } from './affinity.ts';
import { readLogicalCores } from './index.ts';

const allowedCores = (pid: number): string =>
  /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';

test.runIf(process.platform === 'linux')(
  'a pinned thread may run only on its core, and no other thread is touched',
  async () => {
    const core = readLogicalCores().at(-1)?.id ?? 0;
    const before = allowedCores(process.pid);
    const child = spawn('sleep', ['60']);
    try {
      await once(child, 'spawn');
      expect(pinThread(child.pid!, [core])).toBe(true);
      expect(allowedCores(child.pid!)).toBe(String(core));
      expect(allowedCores(process.pid)).toBe(before);
    } finally {
      child.kill();
      await once(child, 'exit');
    }
  },
);

test('without a thread or a core nothing is pinned', () => {
  expect(pinThread(2 ** 30, [0])).toBe(false);
  expect(pinThread(0, [])).toBe(false);
});
