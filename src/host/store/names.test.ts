import fc from 'fast-check';
import { basename, join, normalize } from 'node:path';
import { describe, expect, test } from 'vitest';
import { HostError } from '../errors.ts';
import { checkFilename, checkFunctionName, checkVersion, isFunctionName, isVersion, nextVersion } from './names.ts';
import { editDistance, nearest } from '../config/nearest.ts';

/** Text with many characters that matter in paths. */
const pathLike = fc.oneof(
  fc.string(),
  fc.string({ unit: fc.constantFrom('a', 'Z', '0', '.', '-', '_', '/', '\\', '\0', ' ', '\n', 'é', '%') }),
);

function refusalOf(check: () => void): HostError {
  try {
    check();
  } catch (error) {
    if (error instanceof HostError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

function isAccepted(filename: string): boolean {
  try {
    checkFilename(filename);
    return true;
  } catch (error) {
    if (error instanceof HostError && error.code === 'bad-request') return false;
    throw error;
  }
}

describe('function names and versions', () => {
  test('an accepted name is one folder below any parent, and never hidden', () => {
    fc.assert(
      fc.property(pathLike, (text) => {
        for (const accepted of [isFunctionName(text), isVersion(text)]) {
          if (!accepted) continue;
          expect(normalize(join('/store', text))).toBe(`/store/${text}`);
          expect(basename(text)).toBe(text);
          expect(text.startsWith('.')).toBe(false);
          expect(encodeURIComponent(text)).toBe(text);
        }
      }),
      { numRuns: 600 },
    );
  });

  test('every text by the rule is accepted', () => {
    const units = ['a', 'z', 'A', 'Z', '0', '5', '9'];
    const first = fc.constantFrom(...units);
    const rest = fc.string({ unit: fc.constantFrom(...units, '.', '_', '-'), maxLength: 127 });
    fc.assert(
      fc.property(first, rest, (start, more) => {
        expect(isFunctionName(start + more)).toBe(true);
        expect(isFunctionName(`_${more}`)).toBe(true);
        expect(isVersion(start + more.slice(0, 63))).toBe(true);
      }),
    );
    expect(isFunctionName('x')).toBe(true);
  });

  test.each(['', '.', '..', '../up', 'a/b', '.a', '-a', 'a b', 'a\n', 'a\0', 'a@1', 'a'.repeat(129), 'ü'])(
    'the name %j is refused',
    (name) => {
      expect(() => {
        checkFunctionName(name);
      }).toThrow(expect.objectContaining({ code: 'bad-name' }));
    },
  );

  test('a refusal shows at most a line of the name', () => {
    const { message } = refusalOf(() => {
      checkVersion(`!\u001b[2J${'x'.repeat(10_000)}`);
    });
    expect(message.length).toBeLessThan(250);
    expect(message).not.toContain('\u001b');
  });

  test('the next version is one more than the highest whole number', () => {
    expect(nextVersion([])).toBe('1');
    expect(nextVersion(['1', '2', '10', 'beta', '1.5', '007'])).toBe('11');
    expect(nextVersion(['beta', '99999999999999999999'])).toBe('1');
  });

  test('the next version is never a taken one, however high the highest is', () => {
    const digits = fc.integer({ min: 13, max: 17 }).map((count) => '9'.repeat(count));
    const roundUp = fc.integer({ min: 13, max: 17 }).map((count) => `1${'0'.repeat(count)}`);
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.nat().map(String), digits, roundUp, fc.string())), (versions) => {
        const next = nextVersion(versions);
        expect(versions).not.toContain(next);
        expect(isVersion(next)).toBe(true);
      }),
    );
  });
});

describe('names of uploaded files', () => {
  test('an accepted file name stays in its folder and is written in one way only', () => {
    fc.assert(
      fc.property(pathLike, (filename) => {
        fc.pre(isAccepted(filename));
        expect(normalize(join('/store/v', filename))).toBe(`/store/v/${filename}`);
      }),
      { numRuns: 600 },
    );
  });

  test.each(['', '/etc/passwd', '../model.onnx', 'a/../b', 'a//b', './a', 'a/.', 'a\\b', 'a\0', 'a/'])(
    'the file name %j is refused',
    (filename) => {
      expect(() => {
        checkFilename(filename);
      }).toThrow(expect.objectContaining({ code: 'bad-request' }));
    },
  );

  test.each(['model.onnx', 'model.onnx.data', 'weights/part 1.bin', '.hidden', 'Gewichte-ß'])(
    'the file name %j is accepted',
    (filename) => {
      expect(() => {
        checkFilename(filename);
      }).not.toThrow();
    },
  );
});

describe('the nearest known word', () => {
  test('a typo finds its word, and an unrelated word finds none', () => {
    const known = ['batching', 'handler', 'priority', 'slo'];
    expect(nearest('bacthing', known)).toBe('batching');
    expect(nearest('Handler', known)).toBe('handler');
    expect(nearest('sla', known)).toBe('slo');
    expect(nearest('temperature', known)).toBeUndefined();
  });

  test('the distance is zero for equal words only, and the same both ways', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (left, right) => {
        expect(editDistance(left, right) === 0).toBe(left === right);
        expect(editDistance(left, right)).toBe(editDistance(right, left));
        expect(editDistance(left, right)).toBeLessThanOrEqual(Math.max(left.length, right.length));
      }),
    );
  });
});
