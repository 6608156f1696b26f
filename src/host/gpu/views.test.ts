import { expect, test } from 'vitest';
import { variantsText } from './views.ts';

test('the plan of a function with variants names its variant', () => {
  expect(variantsText('interleave', [], 0)).toBe('interleave');
  expect(variantsText('interleave', ['gpu', 'gpu'], 0)).toBe('gpu (interleave)');
  expect(variantsText('dha', ['gpu', 'memory'], 1)).toBe('gpu and memory (dha), shrunk once');
  expect(variantsText('dha', [], 2)).toBe('dha, shrunk 2 times');
});
