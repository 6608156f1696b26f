import fc from 'fast-check';
import { expect, test } from 'vitest';
import { OutputLines } from './output-lines.ts';

function linesOf(chunks: readonly string[], nowMs: () => number = () => 0): string[] {
  const lines: string[] = [];
  const output = new OutputLines((line) => lines.push(line), nowMs);
  for (const chunk of chunks) output.push(chunk);
  output.end();
  return lines;
}

test('lines are the same however the text is cut into chunks', () => {
  const text = fc.array(fc.constantFrom('a', 'b', '\n', ' ', 'é'), { maxLength: 80 }).map((parts) => parts.join(''));
  fc.assert(
    fc.property(text, fc.array(fc.nat(80)), (whole, cuts) => {
      const at = [0, ...cuts, whole.length].sort((left, right) => left - right);
      const chunks = at.slice(1).map((to, index) => whole.slice(at[index], to));
      expect(linesOf(chunks)).toEqual(whole.split('\n').filter((line) => line.trim() !== ''));
    }),
  );
});

test('colours of ONNX Runtime, titles and cursor movements are left out, and a line of nothing else is none', () => {
  const coloured = '\u001b[0;93m2026-11-28 09:00:00.123 [W:onnxruntime:, graph.cc:1] unused\u001b[m\n';
  expect(
    linesOf([coloured, '\u001b[1', ';31mred\u001b[0m\n', '\u001b[m\n', '\u001b]0;title\u0007\u001b[2Jtext\n']),
  ).toEqual(['2026-11-28 09:00:00.123 [W:onnxruntime:, graph.cc:1] unused', 'red', 'text']);
});

test('a long line is cut, and says by how much', () => {
  expect(linesOf(['x'.repeat(1500), 'y'.repeat(1_000_000), '\nnext'])).toEqual([
    `${'x'.repeat(1500)}${'y'.repeat(500)}... (999500 more characters)`,
    'next',
  ]);
});

test('in a flood some lines of each second are passed on, and the others counted', () => {
  let nowMs = 0;
  const lines = linesOf(
    Array.from({ length: 3000 }, (_, index) => `${index}\n`),
    () => nowMs++,
  );
  expect(lines).toHaveLength(3 * 51);
  expect(lines.filter((line) => line === '950 lines were left out: more than 50 a second')).toHaveLength(3);
  expect(lines[0]).toBe('0');
  expect(lines[51]).toBe('1000');
});
