import { expect, test } from 'vitest';
import { eventText } from '../dashboard/index.ts';
import { EventLog } from '../history/index.ts';
import { fateText, HomeMoves } from './moves.ts';

const member = (id: string, isLeaving = false): { id: string; capacity: number; isLeaving: boolean } => ({
  id,
  capacity: 1000,
  isLeaving,
});

function movesOf(lost: readonly string[] = []): { moves: HomeMoves; told: () => string[]; clock: { nowMs: number } } {
  const eventLog = new EventLog();
  const clock = { nowMs: 1_000_000 };
  const moves = new HomeMoves({ eventLog, isLost: (host) => lost.includes(host), now: () => clock.nowMs });
  return { moves, told: () => eventLog.all().map((each) => eventText(each).text), clock };
}

const abc = ['a', 'b', 'c'].map((id) => member(id));

test.each([
  ['a host is lost', ['a'], abc, abc.slice(1), [['a'], ['b']], 'Its home moved from a to b: a is lost'],
  ['a host has left', [], abc, abc.slice(1), [['a'], ['b']], 'Its home moved from a to b: a has left'],
  ['a host drains', [], abc, [member('a', true), ...abc.slice(1)], [['a'], ['b']], 'from a to b: a drains'],
  ['a host joins', [], abc.slice(1), abc, [['b'], ['a']], 'Its home moved from b to a: a takes part now'],
  ['a host is taken back', [], [member('a', true), ...abc.slice(1)], abc, [['b'], ['a']], 'a takes part now'],
  ['the load is another', [], abc, abc, [['a'], ['b']], 'Its home moved from a to b: for the load'],
  ['the load grows', [], abc, abc, [['a'], ['a', 'b']], 'b is another home, for its load'],
  ['the load shrinks', [], abc, abc, [['a', 'b'], ['a']], 'b is a home no more: its load is less'],
  ['one of two homes is lost', ['a'], abc, abc.slice(1), [['a', 'b'], ['b']], 'a is a home no more: a is lost'],
] as const)('a move says which function moved where and why: %s', (_case, lost, before, now, homes, sentence) => {
  const { moves, told } = movesOf(lost);
  moves.compare('f', homes, [before, now]);
  expect(told()).toEqual([expect.stringContaining(sentence)]);
  expect(moves.latest()).toMatchObject([{ functionName: 'f' }]);
  moves.compare('f', [homes[1], homes[1]], [now, now]);
  expect(told()).toHaveLength(1);
});

test('of thousands of moves twenty a minute are reported one by one, and the rest as a number', () => {
  const { moves, told, clock } = movesOf(['a']);
  for (let index = 0; index < 3000; index++) moves.compare(`f${index}`, [['a'], ['b']], [abc, abc.slice(1)]);
  moves.tellRest();
  expect(told()).toHaveLength(21);
  expect(told().at(-1)).toBe('2980 more functions have other homes in the fleet');
  expect(moves.latest()).toHaveLength(200);
  clock.nowMs += 60_000;
  moves.compare('late', [['a'], ['b']], [abc, abc.slice(1)]);
  expect(told()).toHaveLength(22);
});

test('moves caused by varying load do not push out those of a lost host', () => {
  const { moves } = movesOf(['a']);
  for (let index = 0; index < 50; index++) moves.compare(`f${index}`, [['a'], ['b']], [abc, abc.slice(1)]);
  for (let index = 0; index < 3000; index++) moves.compare(`f${index}`, [['b'], ['c']], [abc, abc]);
  const reasons = moves.latest().map(({ reason }) => reason);
  expect(reasons).toHaveLength(200);
  expect(reasons.filter((reason) => reason === 'lost')).toHaveLength(50);
  expect(moves.latest()[0]).toMatchObject({ functionName: 'f2999' });
});

test("a lost host's functions are counted by their new homes, and content that no other host has is named", () => {
  const { moves } = movesOf(['a']);
  const copies = new Set(['f0@1 aa']);
  const isElsewhere = (field: string): boolean => copies.has(field);
  expect(fateText(moves.fateOf('a', isElsewhere))).toBe('it was lost before the host that was asked came');
  moves.gone('a', ['f0@1 aa', 'f1@2 bb'], isElsewhere);
  for (const [name, to] of [
    ['f0', 'b'],
    ['f1', 'c'],
    ['f2', 'c'],
  ] as const) {
    moves.compare(name, [['a'], [to]], [abc, abc.slice(1)]);
  }
  expect(fateText(moves.fateOf('a', isElsewhere))).toBe(
    'the functions at home there moved to c (2), b (1); ' +
      'no other host has the content of f1@2: bring it back, or publish them again',
  );
  // Another host, which was away too, has it after all.
  copies.add('f1@2 bb');
  expect(fateText(moves.fateOf('a', isElsewhere))).toContain('other hosts have the content of all 2 versions');
});
