import { expect, test } from 'vitest';
import { ladderText } from './views.ts';

test('the plan of a function with variants names its variant', () => {
  expect(ladderText('interleave', [], 0)).toBe('interleave');
  expect(ladderText('interleave', ['gpu', 'gpu'], 0)).toBe('gpu (interleave)');
  expect(ladderText('dha', ['gpu', 'memory'], 1)).toBe('gpu and memory (dha), shrunk once');
  expect(ladderText('dha', [], 2)).toBe('dha, shrunk 2 times');
});
