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

const flagOf = (example: string): string => (example.startsWith('@') ? '--data-binary' : '--data');

test('a shell reads any example as one word, and runs none of it', () => {
  const shellLike = fc
    .array(fc.constantFrom("'", '"', '$(', '`', '\\', ';', ' ', '@', '|', '&', 'a', 'é', '\n'), { minLength: 1, maxLength: 12 })
    .map((parts) => parts.join('')); // prettier-ignore
  // Many in one shell: a process for each would take most of the test's time.
  fc.assert(
    fc.property(fc.array(shellLike, { minLength: 1, maxLength: 50 }), (examples) => {
      const commands = examples.map((example) =>
        exampleCall('http://h:1', 'x', example).replace('curl -s', String.raw`printf '%s\0'`),
      );
      const words = spawnSync('sh', ['-c', commands.join('\n')], { encoding: 'utf8' })
        .stdout.split('\0')
        .slice(0, -1);
      expect(words).toEqual(examples.flatMap((example) => [flagOf(example), example, 'http://h:1/function/x']));
    }),
    { numRuns: 5 },
  );
});
