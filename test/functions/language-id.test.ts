import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { handlerCall, openFunction, type OpenFunction } from '../../functions/_training/call-function.ts';
import {
  bucketCount,
  charactersMax,
  featuresOf,
  languages,
  ngramsMax,
  wordsOf,
} from '../../functions/language-id/features.ts';
import * as handler from '../../functions/language-id/handler.ts';
import type { LanguageAnswer } from '../../functions/language-id/handler.ts';
import { joinBatch, rowsOf } from './batches.ts';

const folder = join(import.meta.dirname, '../../functions/language-id');
const heldOut = JSON.parse(readFileSync(join(folder, 'held-out.json'), 'utf8')) as Record<string, string[]>;

let languageId: OpenFunction;
beforeAll(async () => {
  languageId = await openFunction(folder, handler);
});
const ask = async (body: string | Uint8Array, headers?: Record<string, string>): Promise<LanguageAnswer> =>
  (await languageId.call(body, headers)) as LanguageAnswer;

/** The sizes of a text's tensors, or the status of its refusal. */
function outcomeOf(text: string): unknown {
  try {
    return handler.preprocess(handlerCall(text)).map(({ data }) => data.length);
  } catch (error) {
    return (error as { status?: unknown }).status;
  }
}

describe('what it answers', () => {
  test('at least 95% of the 20 held-out sentences of each language are identified correctly', async () => {
    expect(Object.keys(heldOut).sort()).toEqual(languages.map(({ code }) => code).sort());
    for (const [code, sentences] of Object.entries(heldOut)) {
      expect(new Set(sentences).size).toBeGreaterThanOrEqual(20);
      let right = 0;
      for (const sentence of sentences) if ((await ask(sentence)).language === code) right++;
      expect(right / sentences.length, code).toBeGreaterThanOrEqual(0.95);
    }
  });

  test.each([
    ['Où est la bibliothèque ?', 'fr', 'French'],
    ['Where is the library?', 'en', 'English'],
    ['Wo ist die Bibliothek?', 'de', 'German'],
    ['¿Dónde está la biblioteca?', 'es', 'Spanish'],
    ["Dov'è la biblioteca?", 'it', 'Italian'],
    ['Waar is de bibliotheek?', 'nl', 'Dutch'],
    ['Onde fica a biblioteca?', 'pt', 'Portuguese'],
    ['Gdzie jest biblioteka?', 'pl', 'Polish'],
    ['OÙ EST LA BIBLIOTHÈQUE ?', 'fr', 'French'],
    ['Ou est la bibliotheque ?', 'fr', 'French'],
    ['Thank you very much!', 'en', 'English'],
    ['Danke, bis morgen!', 'de', 'German'],
    ['Merci beaucoup, à demain !', 'fr', 'French'],
    ['¡Muchas gracias, hasta mañana!', 'es', 'Spanish'],
    ['Grazie mille, a domani!', 'it', 'Italian'],
    ['Dank je wel, tot morgen!', 'nl', 'Dutch'],
    ['Muito obrigado, até amanhã!', 'pt', 'Portuguese'],
    ['Dziękuję bardzo, do jutra!', 'pl', 'Polish'],
  ])('%s is %s', async (sentence, language, name) => {
    expect(await ask(sentence)).toMatchObject({ language, name });
  });

  test('the scores are a probability of every language, most likely first', async () => {
    const { language, confidence, scores } = await ask('Ich liebe dich');
    const values = Object.values(scores);
    expect(Object.keys(scores)).toHaveLength(languages.length);
    expect(Object.keys(scores)[0]).toBe(language);
    expect(values[0]).toBe(confidence);
    expect(values).toEqual([...values].sort((a, b) => b - a));
    expect(values.reduce((sum, score) => sum + score)).toBeCloseTo(1, 2);
  });

  test('a letter and its decomposed form are the same', async () => {
    const sentence = 'Où est la bibliothèque ?';
    expect(await ask(sentence.normalize('NFD'))).toEqual(await ask(sentence));
  });

  test('the text may be in a JSON object, under its own Content-Type or the one that curl sends', async () => {
    const body = JSON.stringify({ text: 'Gdzie jest biblioteka?' });
    const plain = await ask('Gdzie jest biblioteka?');
    expect(await ask(body, { 'content-type': 'application/json; charset=utf-8' })).toEqual(plain);
    expect(await ask(body, { 'content-type': 'application/x-www-form-urlencoded' })).toEqual(plain);
  });

  test('only the beginning of a long text decides, at once', async () => {
    const start = 'Der Zug fährt heute nicht. '.repeat(Math.ceil(charactersMax / 27)).slice(0, charactersMax);
    const long = start + 'the train is late '.repeat(60_000);
    expect(long.length).toBeGreaterThan(1_000_000);
    expect(await ask(long)).toEqual(await ask(start));
  });
});

describe('what it refuses', () => {
  test.each([
    ['nothing', '', /^the text is empty$/],
    ['white space', ' \n\t', /^the text is empty$/],
    ['digits', '12345 67,89', /no Latin letters.*English.*Polish/],
    ['another script', 'Где библиотека?', /no Latin letters/],
    ['bytes that are not UTF-8', Uint8Array.of(0x4f, 0xf9, 0x20), /not UTF-8/],
  ])('%s is refused with 400', async (_, body, message) => {
    await expect(ask(body)).rejects.toMatchObject({ status: 400, message: expect.stringMatching(message) as string });
  });

  test.each([
    ['{"text": ', /^the body is not JSON: /],
    ['{"sentence": "hello"}', /no string in the field 'text'/],
    ['{"text": 7}', /no string in the field 'text'/],
    ['null', /no string in the field 'text'/],
    ['{"text": ""}', /^the text is empty$/],
  ])('the JSON %s is refused with 400', async (body, message) => {
    await expect(ask(body, { 'content-type': 'application/json' })).rejects.toMatchObject({
      status: 400,
      message: expect.stringMatching(message) as string,
    });
  });

  test('any text becomes a whole input, or is refused with 400', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 200 }), (text) => {
        expect([400, [ngramsMax, ngramsMax]]).toContainEqual(outcomeOf(text));
      }),
    );
  });
});

describe('its features', () => {
  const words = fc.array(fc.stringMatching(/^[a-zà-ÿł]{1,12}$/), { minLength: 1, maxLength: 60 });

  test('every n-gram has a row; only padding is row 0 with weight 0', () => {
    fc.assert(
      fc.property(words, (words) => {
        const { ids, weights, count } = featuresOf(words);
        expect(count).toBeGreaterThan(0);
        expect(ids.every((id, at) => (at < count ? id > 0 && id < bucketCount : id === 0))).toBe(true);
        expect(weights.every((weight, at) => (at < count ? weight > 0 : weight === 0))).toBe(true);
      }),
    );
  });

  test('case does not matter, and an apostrophe separates words but stays', () => {
    expect([...wordsOf('L’École, ‘don’t’ 42')]).toEqual(["l'", 'école', "don'", 't']);
  });
});

describe('its model', () => {
  test('is small enough to be kept with the code', () => {
    expect(statSync(join(folder, 'model.onnx')).size).toBeLessThanOrEqual(500_000);
  });

  test('an answer does not depend, in any bit, on the rest of its batch', async () => {
    const sentences = Object.values(heldOut).map(([first = '']) => first);
    const requests = sentences.map((sentence) => handler.preprocess(handlerCall(sentence)));
    const alone = await Promise.all(
      requests.map(async (tensors) => rowsOf(await languageId.run(tensors), 'scores')[0]),
    );
    const together = rowsOf(await languageId.run(joinBatch(requests)), 'scores');
    expect(together).toEqual(alone);
    const reversed = rowsOf(await languageId.run(joinBatch(requests.toReversed())), 'scores');
    expect(reversed.toReversed()).toEqual(alone);
  });

  test('padding adds nothing, even with a weight', async () => {
    const [ids, weights] = handler.preprocess(handlerCall('Wo ist die Bibliothek?'));
    if (ids === undefined || weights === undefined) throw new Error('two tensors were expected');
    const heavier = Float32Array.from(weights.data as Float32Array, (weight) => (weight === 0 ? 5 : weight));
    const [plain] = rowsOf(await languageId.run([ids, weights]), 'scores');
    const [padded] = rowsOf(await languageId.run([ids, { ...weights, data: heavier }]), 'scores');
    expect(padded).toEqual(plain);
  });
});
