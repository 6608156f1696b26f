/** What other members tell in Redis. */
import { expect, test } from 'vitest';
import { answerMs, checkedOffer, shareMs, type FunctionOffer } from './offers.ts';
import { ChangeReader } from './changes.ts';
import type { MemberLink } from './link.ts';

test('an invalid offer in Redis hides neither the other offers nor later members', async () => {
  const offer = { ms: 5, isHeld: true, load: 0 };
  const texts: Record<string, string> = { good: JSON.stringify(offer), idle: '{"isHeld":true,"load":0}' };
  for (const text of ['', '{', 'null', '[]', '7', '{"ms":"soon","isHeld":true,"load":0}', '{"ms":5}']) {
    texts[`bad ${text}`] = text;
  }
  const commands = { hgetall: () => Promise.resolve(texts) };
  const offers = new ChangeReader<FunctionOffer>(
    { commands } as unknown as MemberLink,
    (member) => member,
    checkedOffer,
  );
  expect(await offers.take('b:1', 'id', { generation: 3 })).toBe(true);
  expect(offers.of('good')?.get('b:1')).toEqual(offer);
  expect([...offers.fields()].map(([field]) => field)).toEqual(['good', 'idle']);
  expect([...offers.by('b:1')].map(([field]) => field)).toEqual(['good', 'idle']);
  expect(await offers.take('b:1', 'id', { generation: 3 })).toBe(false);
  expect(await offers.take('b:1', 'id', { generation: 4, changes: [['good', null]] })).toBe(true);
  expect(offers.of('good')).toBeUndefined();
  offers.forget('b:1');
  expect([...offers.fields()]).toEqual([]);
});

test("an answer is predicted by the member's own word, else by what a call takes there or here", () => {
  const offer: FunctionOffer = { isHeld: true, load: 0, startMs: 300, callMs: 20, lanes: 4 };
  expect(answerMs({ ...offer, ms: 7 }, 99, 5)).toBe(12);
  expect(answerMs(offer, 99)).toBe(320);
  expect(answerMs({ ...offer, callMs: undefined }, 99)).toBe(399);
  expect(answerMs({ isHeld: true, load: 0 }, undefined)).toBe(10);
  expect([shareMs(offer), shareMs({})]).toEqual([5, 10]);
});
