/** What benchmarks print while they run. */
import { expect, test, vi } from 'vitest';
import { showProgress } from '../../bench/progress.ts';

function output(isTTY: boolean): { isTTY: boolean; write: (text: string) => void; written: string[] } {
  const written: string[] = [];
  return { isTTY, write: (text) => void written.push(text), written };
}

test('without a terminal there is a line with the elapsed time, every 2 s at most, and the last step', () => {
  const log = output(false);
  let ms = 0;
  const { say, end } = showProgress(log, () => ms);
  for (; ms < 5000; ms += 100) say(`step ${ms / 100}`);
  end();
  expect(log.written).toEqual(['0.0 s: step 0\n', '2.0 s: step 20\n', '4.0 s: step 40\n', '4.9 s: step 49\n']);
});

test('a step that nothing follows is printed when its 2 s are over', () => {
  vi.useFakeTimers();
  try {
    const log = output(false);
    const { say, end } = showProgress(log);
    say('first');
    say('second');
    vi.advanceTimersByTime(1999);
    expect(log.written).toHaveLength(1);
    vi.advanceTimersByTime(1);
    say('second');
    end();
    expect(log.written).toEqual(['0.0 s: first\n', '0.0 s: second\n']);
  } finally {
    vi.useRealTimers();
  }
});

test('a terminal has one line, which is cleared at the end', () => {
  const terminal = output(true);
  const { say, end } = showProgress(terminal);
  say('first');
  end();
  expect(terminal.written).toEqual(['\r\u001B[Kfirst', '\r\u001B[K']);
});
