import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decodeName, encodeName } from './entry-names.ts';

const functionName = fc.stringMatching(/^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/);

test('a small name stays as it is, and capitals are a suffix', () => {
  expect(['bert', 'Bert', 'BERT', 'a.json', '__proto__'].map(encodeName)).toEqual([
    'bert',
    'bert!1',
    'bert!f',
    'a.json',
    '__proto__',
  ]);
});

test('every name is decoded to itself, and its encoding fits a file name with a suffix', () => {
  fc.assert(
    fc.property(functionName, (name) => {
      const encoded = encodeName(name);
      expect(decodeName(encoded)).toBe(name);
      expect(encoded).toBe(encoded.toLowerCase());
      expect(encoded.length).toBeLessThan(200);
    }),
  );
});

test('two names are two encodings on a disk that knows no capitals', () => {
  const pair = functionName.chain((name) =>
    fc.tuple(
      fc.constant(name),
      fc.array(fc.boolean(), { minLength: name.length, maxLength: name.length }).map((flips) =>
        name
          .split('')
          .map((letter, at) => (flips[at] === true ? letter.toUpperCase() : letter.toLowerCase()))
          .join(''),
      ),
    ),
  );
  fc.assert(
    fc.property(pair, ([one, other]) => {
      expect(encodeName(one) === encodeName(other)).toBe(one === other);
    }),
  );
});

test('what no name is encoded as is decoded to no name', () => {
  for (const text of ['', '.nonce', 'Bert', 'bert!', 'bert!0', 'bert!1f', '1!1', 'a/b', 'bert!F']) {
    expect(decodeName(text)).toBeUndefined();
  }
});
