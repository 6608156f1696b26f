import { expect, test } from 'vitest';
import { madeUpRoot } from '../../test/support/made-up-root.ts';
import { countKernelKills, KernelKills, type KernelKill } from './kernel-kills.ts';

const made = madeUpRoot();
const { write } = made;

test.each([
  [
    'a group of version 2',
    { 'proc/self/cgroup': '0::/pod/box\n', 'sys/fs/cgroup/pod/box/memory.events': 'low 0\noom 4\noom_kill 3\n' },
  ],
  [
    'a group of version 1',
    {
      'proc/self/cgroup': '9:memory:/box\n',
      'sys/fs/cgroup/memory/box/memory.oom_control': 'under_oom 0\noom_kill 3\n',
    },
  ],
  ['a container whose group has another name', { 'sys/fs/cgroup/memory/memory.oom_control': 'oom_kill 3\n' }],
  ['a machine without groups', {}],
])('the kills of the kernel are counted in %s', (_where, files) => {
  write({ 'proc/vmstat': 'pgfault 12\noom_kill 8\n', ...files });
  expect(countKernelKills(made.path)).toBe(Object.keys(files).length === 0 ? 8 : 3);
});

test('a system that does not count kills gives no count', () => {
  expect(countKernelKills(made.path)).toBeUndefined();
});

test('each kill that the kernel counts explains the end of one process, and earlier kills explain none', () => {
  let count: number | undefined = 5;
  const kills = new KernelKills(() => count);
  const seen: KernelKill[] = [];
  const forget = kills.follow((kill) => seen.push(kill));
  expect(kills.explains({ pid: 1, purpose: 'sessions' })).toBe(false);
  count = 7;
  expect(kills.explains({ pid: 2, purpose: 'sessions' })).toBe(true);
  forget();
  expect(kills.explains({ pid: 3, purpose: undefined })).toBe(true);
  expect(kills.explains({ pid: 4, purpose: 'sessions' })).toBe(false);
  count = undefined;
  expect(kills.explains({ pid: 5, purpose: 'sessions' })).toBe(false);
  expect(seen).toEqual([{ pid: 2, purpose: 'sessions' }]);
});
