import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { handlerCall, openFunction, type OpenFunction } from '../../functions/_training/call-function.ts';
import { accented, contexts, encodeWord, plainWord, sequenceLength } from '../../functions/accent-restorer/accents.ts';
import { everydayWords } from '../../functions/accent-restorer/everyday-words.ts';
import * as handler from '../../functions/accent-restorer/handler.ts';
import type { AccentAnswer } from '../../functions/accent-restorer/handler.ts';
import { countSentences, withoutAccents } from '../../functions/accent-restorer/sentences.ts';
import { joinBatch, rowsOf } from './batches.ts';

const folder = join(import.meta.dirname, '../../functions/accent-restorer');
const heldOut = JSON.parse(readFileSync(join(folder, 'held-out.json'), 'utf8')) as string[];

let accentRestorer: OpenFunction;
beforeAll(async () => {
  accentRestorer = await openFunction(folder, handler);
});
const ask = async (body: string | Uint8Array, headers?: Record<string, string>): Promise<AccentAnswer> =>
  (await accentRestorer.call(body, headers)) as AccentAnswer;

describe('accent-restorer: answers', () => {
  test('restores at least 95% of the words of held-out sentences, more than 35% of which had lost an accent', async () => {
    const counts = await countSentences(heldOut, async (text) => (await ask(text)).text);
    expect(counts.words).toBeGreaterThan(250);
    expect(counts.right / counts.words).toBeGreaterThanOrEqual(0.95);
    expect(counts.unchanged / counts.words).toBeLessThan(0.65);
  });

  test.each([
    ['Ou est la bibliotheque ?', 'Où est la bibliothèque ?', 2],
    ['OU EST LA BIBLIOTHEQUE ?', 'OÙ EST LA BIBLIOTHÈQUE ?', 2],
    ['tres bien', 'très bien', 1],
    ['soeur', 'sœur', 1],
    ["l'ecole", "l'école", 1],
    ['l’ecole', 'l’école', 1],
  ])('%s becomes %s', async (plain, text, changedWords) => {
    expect(await ask(plain)).toEqual({ text, changedWords });
  });

  test.each([['42'], ['été, même : ça là-bas'], ['библиотека'], ['!?\n\t  …'], ['x'.repeat(40)]])(
    '%s stays as it is',
    async (text) => {
      expect(await ask(text)).toEqual({ text, changedWords: 0 });
    },
  );

  test('takes the text from a JSON object too', async () => {
    const answer = await ask('{"text": "tres bien"}', { 'content-type': 'application/json' });
    expect(answer.text).toBe('très bien');
  });

  test('adds accents to any text, and changes no letter', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'grapheme', maxLength: 120 }), async (given) => {
        fc.pre(given.trim() !== '' && !given.trimStart().startsWith('{'));
        const { text } = await ask(given);
        expect(withoutAccents(text)).toBe(withoutAccents(given));
      }),
    );
  });
});

describe('accent-restorer: refusals', () => {
  test.each([
    ['nothing', '', /^the text is empty$/],
    ['bytes that are not UTF-8', Uint8Array.of(0xe9, 0x74, 0xe9), /not UTF-8/],
    ['too many words', 'mot '.repeat(501), /^the text has more than 500 words$/],
  ])('%s is refused with 400', async (_, body, message) => {
    await expect(ask(body)).rejects.toMatchObject({ status: 400, message: expect.stringMatching(message) as string });
  });
});

describe('accent-restorer: words', () => {
  test('letters and marks together give every everyday word again', () => {
    for (const word of everydayWords) {
      const plain = plainWord(word.toLowerCase());
      expect(plain?.letters).toMatch(/^[a-z]+$/);
      expect(accented(plain?.letters ?? '', plain?.marks ?? [])).toBe(word.toLowerCase());
    }
  });

  test.each(['señor', 'naïveté1', 'łódź', 'ça va'])('%s is left alone: it is not written in French letters', (word) => {
    expect(plainWord(word)).toBeUndefined();
  });

  test('the input of a word is its context and its letters, then zeros', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[a-z]{1,25}$/), fc.constantFrom(...contexts), (letters, context) => {
        const row = new Int32Array(sequenceLength);
        expect(encodeWord(letters, context, row)).toBe(letters.length + 1);
        expect(row[0]).toBe(27 + contexts.indexOf(context));
        expect(String.fromCharCode(...row.subarray(1, letters.length + 1).map((code) => code + 96))).toBe(letters);
        expect(row.subarray(letters.length + 1).every((code) => code === 0)).toBe(true);
      }),
    );
  });
});

describe('accent-restorer: model', () => {
  test('the model has at most 200 kB, since it is stored with the code', () => {
    expect(statSync(join(folder, 'model.onnx')).size).toBeLessThanOrEqual(200_000);
  });

  test('the answer for a word does not depend on the rest of its batch', async () => {
    const requests = heldOut.slice(0, 8).map((text) => handler.preprocess(handlerCall(withoutAccents(text))));
    const alone: number[][] = [];
    for (const tensors of requests) alone.push(...rowsOf(await accentRestorer.run(tensors), 'mark_scores'));
    const together = rowsOf(await accentRestorer.run(joinBatch(requests)), 'mark_scores');
    expect(together).toHaveLength(alone.length);
    for (const [row, scores] of together.entries()) {
      for (const [mark, score] of scores.entries()) expect(score).toBeCloseTo(alone[row]?.[mark] ?? Number.NaN, 4);
    }
  });
});
