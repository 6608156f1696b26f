import fc from 'fast-check';
import { expect, test } from 'vitest';
import { EventParser } from '../../src/client/index.ts';

test('the same events come out however their text is cut', () => {
  const text = 'retry: 2000\n\nevent: tick\ndata: {"a":1}\n\n: comment\n\nevent: event\ndata: x\ndata: y\n\n';
  fc.assert(
    fc.property(fc.array(fc.nat(text.length), { maxLength: 6 }), (cuts) => {
      const parser = new EventParser();
      const bounds = [0, ...cuts.toSorted((a, b) => a - b), text.length];
      const events = bounds.slice(1).flatMap((end, index) => parser.push(text.slice(bounds[index], end)));
      expect(events).toEqual([
        { event: 'tick', data: '{"a":1}' },
        { event: 'event', data: 'x\ny' },
      ]);
    }),
  );
});
