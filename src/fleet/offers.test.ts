/** Other hosts' offers in Redis. */
import { expect, test } from 'vitest';
import type { RedisLink } from '../queue/index.ts';
import { OffersIn } from './offers.ts';

test('an invalid offer in Redis hides neither the other offers nor later hosts', async () => {
  const offer = { ms: 5, isHeld: true, load: 0 };
  const texts: Record<string, string> = { good: JSON.stringify(offer), idle: '{"isHeld":true,"load":0}' };
  for (const text of ['', '{', 'null', '[]', '7', '{"ms":"soon","isHeld":true,"load":0}', '{"ms":5}']) {
    texts[`bad ${text}`] = text;
  }
  const commands = { hgetall: () => Promise.resolve(texts) };
  const offers = new OffersIn({ commands } as unknown as RedisLink, (host) => host);
  await offers.take('b:1', 'id', { generation: 3 });
  expect(offers.of('good')?.get('b:1')).toEqual(offer);
  expect([...offers.fields()].map(([field]) => field)).toEqual(['good', 'idle']);
});
