import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { treeCpuMs } from './processor-use.ts';

const busy = 'const endMs = process.cpuUsage().user / 1000 + 300; while (process.cpuUsage().user / 1000 < endMs);';

test.skipIf(process.platform !== 'linux')(
  'what a process uses includes its children and theirs, also once they have ended',
  async () => {
    const beforeMs = treeCpuMs()!;
    const script = `${busy} require('node:child_process').spawnSync(process.execPath, ['-e', ${JSON.stringify(busy)}])`;
    const child = spawn(process.execPath, ['-e', `${script}; console.log('done'); setInterval(() => undefined, 1e9)`], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      await once(child.stdout, 'data');
      // Two processes of 300 ms at least, counted in steps of 10.
      const alive = treeCpuMs()! - beforeMs;
      expect(alive).toBeGreaterThanOrEqual(570);
      child.kill('SIGKILL');
      await once(child, 'exit');
      expect(treeCpuMs()! - beforeMs).toBeGreaterThanOrEqual(alive);
    } finally {
      child.kill('SIGKILL');
    }
  },
);

test('nothing is known of a process that is gone', () => {
  expect(treeCpuMs(2 ** 30)).toBeUndefined();
});
