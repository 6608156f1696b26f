import { Writable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createLogger } from './logger.ts';

/** What a logger of this form writes for `log`. */
function written(format: 'json' | 'pretty', log: (logger: ReturnType<typeof createLogger>) => void): string {
  let text = '';
  const out = new Writable({
    decodeStrings: false,
    write(chunk: string, _encoding, done) {
      text += chunk;
      done();
    },
  });
  log(createLogger({ level: 'info', format }, out));
  return text;
}

// oxlint-disable-next-line no-control-regex -- these are what must not reach a terminal
const controls = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/;
// oxlint-disable-next-line no-control-regex -- see above
const controlTexts = fc.stringMatching(/^[\u0000-\u00a0\u2028-\u202e\u2066-\u2069x ]{0,20}$/);

describe('a log for a terminal', () => {
  test('shows control characters of messages, fields and errors, and sends none', () => {
    fc.assert(
      fc.property(controlTexts, controlTexts, controlTexts, (message, field, stack) => {
        const err = Object.assign(new Error('failed'), { stack });
        const text = written('pretty', (logger) => logger.info({ err, field, inner: { field } }, message));
        expect(text).not.toMatch(controls);
        // Only the lines of a stack are lines.
        expect(text.split('\n').length).toBe(2 + stack.split('\n').length);
      }),
    );
  });

  test('is as before for plain text', () => {
    const text = written('pretty', (logger) => logger.warn({ function: 'f', words: 'two words' }, 'façade ✓'));
    expect(text).toMatch(/^\d\d:\d\d:\d\d\.\d{3} warn {2}façade ✓ function=f words="two words"\n$/);
  });

  test('shows an escape sequence that a handler prints', () => {
    const text = written('pretty', (logger) => logger.info('\u001b[2J\u0007over\rwritten'));
    expect(text).toContain(String.raw`\u001b[2J\u0007over\rwritten`);
  });
});

test.each(['json', 'pretty'] as const)(
  'a reader that takes nothing costs a megabyte and %s lines, which are counted',
  (format) => {
    const waiting: (() => void)[] = [];
    const lines: string[] = [];
    const out = new Writable({
      decodeStrings: false,
      write(chunk: string, _encoding, done) {
        lines.push(chunk);
        waiting.push(done);
      },
    });
    const logger = createLogger({ level: 'info', format }, out);
    for (let line = 0; line < 3000; line++) logger.info('x'.repeat(1000));
    expect(out.writableLength).toBeLessThan(2 ** 20 + 2000);
    const kept = Math.ceil(2 ** 20 / (out.writableLength / Math.floor(out.writableLength / 1000)));
    while (out.writableLength > 0) waiting.shift()!();
    logger.info('again');
    while (out.writableLength > 0) waiting.shift()!();
    const said = lines.findIndex((line) => line.includes('lines of the log were lost'));
    expect(said).toBeGreaterThan(kept - 100);
    expect(Number(/lost"?[:=](\d+)/.exec(lines[said]!)?.[1])).toBe(3000 - said);
    expect(lines[said + 1]).toContain('again');
  },
);
