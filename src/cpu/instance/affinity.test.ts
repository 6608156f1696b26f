import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { handOverOrder } from './affinity.ts';

describe('the parts of a batch', () => {
  const cores = fc.array(fc.uniqueArray(fc.nat(7), { minLength: 1, maxLength: 4 }), { maxLength: 6 });

  it('are handed over each once, last those to instances on the core of the caller', () => {
    fc.assert(
      fc.property(cores, fc.option(fc.nat(7), { nil: undefined }), (list, here) => {
        const order = handOverOrder(list, here);
        expect(order.toSorted((a, b) => a - b)).toEqual(list.map((_, index) => index));
        const isHere = order.map((index) => here !== undefined && (list[index] ?? []).includes(here));
        expect(isHere).toEqual(isHere.toSorted((a, b) => Number(a) - Number(b)));
      }),
    );
  });

  it('go last of all to the instance that runs its model there', () => {
    expect(handOverOrder([[1], [0, 1], [2]], 1)).toEqual([2, 1, 0]);
    expect(handOverOrder([[1], [0, 1], [2]], undefined)).toEqual([0, 1, 2]);
  });
});
