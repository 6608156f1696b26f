/** What other members tell in Redis. */
import { expect, test } from 'vitest';
import { checkedOffer, type FunctionOffer } from './offers.ts';
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
