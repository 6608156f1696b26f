import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readOomKills } from './oom-kills.ts';

function machine(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), 'turntable-kills-'));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const vmstat = { 'proc/vmstat': 'pgfault 5\noom_kill 9\n' };

test.each([
  ['version 1', '4:memory:/a/b\n', 'memory/a/b/memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 3\n', 3],
  ['version 2', '0::/a\n', 'a/memory.events', 'low 0\noom 7\noom_kill 4\noom_group_kill 1\n', 4],
  ['a container, whose group is the mount', '0::/outside\n', 'memory.events', 'oom 7\noom_kill 2\n', 2],
])('kills for lack of memory are those of the control group, %s', (_form, group, file, text, count) => {
  const root = machine({ ...vmstat, 'proc/self/cgroup': group, [`sys/fs/cgroup/${file}`]: text });
  expect(readOomKills(root)).toBe(count);
});

test('kills for lack of memory are those of the machine where the group does not say, or unknown', () => {
  expect(readOomKills(machine(vmstat))).toBe(9);
  expect(readOomKills(machine({}))).toBeUndefined();
});
