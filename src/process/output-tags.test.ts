import { expect, test, vi } from 'vitest';
import { tagOutput, takeTag } from './output-tags.ts';

test('each line of output carries the current number, and none if there is none', () => {
  const written: string[] = [];
  let number: number | undefined;
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(process.stdout, 'write').mockImplementation(
    (chunk: string | Uint8Array) => written.push(Buffer.from(chunk as string).toString()) > 0,
  );
  try {
    tagOutput(() => number);
    process.stdout.write('before\n');
    number = 7;
    process.stdout.write('two\nlines\n');
    process.stdout.write(Buffer.from('bytes\n'));
    number = 12;
    process.stdout.write('rest');
    process.stdout.write(' of it\n');
  } finally {
    vi.restoreAllMocks();
  }
  const lines = written.join('').trimEnd().split('\n').map(takeTag);
  expect(lines).toEqual([
    { number: undefined, text: 'before' },
    { number: 7, text: 'two' },
    { number: 7, text: 'lines' },
    { number: 7, text: 'bytes' },
    { number: 12, text: 'rest of it' },
  ]);
});
