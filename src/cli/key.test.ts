import { createHash } from 'node:crypto';
import { afterEach, expect, test, vi } from 'vitest';
import { keyCommand } from './key.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

async function run(...words: string[]): Promise<string> {
  const log = vi.spyOn(console, 'log').mockReturnValue();
  await keyCommand().exitOverride().parseAsync(words, { from: 'user' });
  return log.mock.calls.flat().join('\n');
}

test('the printed entry has the hash of the printed key', async () => {
  const [, key = '', entry = ''] =
    /^key: {3}(\S+)\nentry: (\S+)$/.exec(await run('ci', '--scopes', 'publish,read')) ?? [];
  const hash = createHash('sha256').update(key).digest('hex');
  expect(entry).toBe(`ci:publish+read:sha256:${hash}`);
});

test('an unknown scope is refused', async () => {
  await expect(run('ci', '--scopes', 'root')).rejects.toMatchObject({
    message: "key 'ci' has the scope 'root', which is none of invoke, publish, read",
    exitCode: 2,
  });
});
