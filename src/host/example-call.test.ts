import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { exampleCall } from './example-call.ts';

test('a text is sent as it is, a file by its path', () => {
  expect(exampleCall('http://h:1', 'greet', 'Guten Morgen')).toBe(
    `curl -s --data 'Guten Morgen' http://h:1/function/greet`,
  );
  expect(exampleCall('http://h:1', 'see', '@functions/see/7.pgm')).toBe(
    'curl -s --data-binary @functions/see/7.pgm http://h:1/function/see',
  );
});

test('a shell takes any example for one word, and runs nothing of it', () => {
  const shellLike = fc
    .array(fc.constantFrom("'", '"', '$(', '`', '\\', ';', ' ', '@', '|', '&', 'a', 'é', '\n'), { minLength: 1, maxLength: 12 })
    .map((parts) => parts.join('')); // prettier-ignore
  fc.assert(
    fc.property(shellLike, (example) => {
      const command = exampleCall('http://h:1', 'x', example).replace('curl -s', String.raw`printf '%s\0'`);
      const words = spawnSync('sh', ['-c', command], { encoding: 'utf8' }).stdout.split('\0').slice(0, -1);
      const flag = example.startsWith('@') ? '--data-binary' : '--data';
      expect(words).toEqual([flag, example, 'http://h:1/function/x']);
    }),
    { numRuns: 40 },
  );
});
