import { expect, test } from 'vitest';
import { InFlightBytes } from '../limits/in-flight.ts';
import { Lists } from './lists.ts';

const memory = { collect: () => undefined, trim: () => undefined, ownBytes: () => 0 };
const items = Array.from({ length: 20_000 }, (_, index) => index);

test('all that ask for a list before it is begun get the same bytes, which count once until the last has read them', async () => {
  const inFlight = new InFlightBytes(1e6, { memory });
  const lists = new Lists(inFlight);
  let made = 0;
  const ask = (url: string) =>
    lists.of(url, async () => {
      made++;
      return Promise.resolve({ url, items });
    });
  const first = ask('/a');
  const [again, other] = [ask('/a'), ask('/b')];
  const [one, two] = await Promise.all([first, again]);
  const bytes = one.json.byteLength;
  expect(JSON.parse(one.json.toString())).toEqual({ url: '/a', items });
  expect(two.json).toBe(one.json);
  expect(made).toBeLessThanOrEqual(2);
  const overs: (() => void)[] = [];
  for (let reader = 0; reader < 100; reader++) one.read((over) => overs.push(over));
  expect(inFlight.bytes).toBe(bytes);
  for (const over of overs.splice(1)) over();
  expect(inFlight.bytes).toBe(bytes);
  overs[0]!();
  expect(inFlight.bytes).toBe(0);
  // Who asks after it was begun gets one of what is true then.
  expect((await ask('/a')).json).not.toBe(one.json);
  expect(JSON.parse((await other).json.toString())).toMatchObject({ url: '/b' });
});

test('a list that fails fails for those that asked for it, and the next is made', async () => {
  const lists = new Lists(new InFlightBytes(1e6, { memory }));
  const failing = lists.of('/a', () => Promise.reject(new Error('planted')));
  await expect(failing).rejects.toThrow('planted');
  expect((await lists.of('/a', () => Promise.resolve({ a: 1 }))).json.toString()).toBe('{"a":1}\n');
});
