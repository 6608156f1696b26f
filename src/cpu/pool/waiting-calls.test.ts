import fc from 'fast-check';
import { expect, test } from 'vitest';
import { makeTicket, type Ticket } from './ticket.ts';
import { WaitingCalls } from './waiting-calls.ts';

const nothing = { kind: 'tensors', tensors: [] } as const;
const ignore = (): void => undefined;
const ticketOf = (deadlineMs?: number, signal?: AbortSignal): Ticket =>
  makeTicket(nothing, { deadlineMs, signal }, ignore, ignore);

test('calls leave in the order in which they came; one that comes back is the first', () => {
  fc.assert(
    fc.property(fc.array(fc.boolean()), (given) => {
      const waiting = new WaitingCalls(ignore);
      const expected: Ticket[] = [];
      for (const isBack of given) {
        const ticket = ticketOf();
        if (isBack) waiting.putBack(ticket);
        else waiting.add(ticket);
        expected.splice(isBack ? 0 : expected.length, 0, ticket);
      }
      const taken = waiting.take();
      expect(taken).toHaveLength(expected.length);
      for (const [at, ticket] of taken.entries()) expect(ticket).toBe(expected[at]);
    }),
  );
});

test('a call without a client or past its deadline is never among those that are sent, and is told why', () => {
  const kinds = fc.constantFrom<'stays' | 'late' | 'gone'>('stays', 'late', 'gone');
  fc.assert(
    fc.property(fc.array(kinds), fc.nat(10), (given, count) => {
      const dropped = new Map<Ticket, string>();
      const waiting = new WaitingCalls((ticket, { code }) => dropped.set(ticket, code));
      const tickets = given.map((kind) => {
        const ticket = ticketOf(kind === 'late' ? 5 : 7, kind === 'gone' ? AbortSignal.abort() : undefined);
        waiting.add(ticket);
        return { kind, ticket };
      });
      waiting.dropGone(5, count);
      const stay = tickets.filter(({ kind }) => kind === 'stays').map(({ ticket }) => ticket);
      expect(waiting.take(count)).toEqual(stay.slice(0, count));
      const codes = { stays: undefined, late: 'deadline-passed', gone: 'cancelled' };
      for (const { kind, ticket } of tickets) expect([undefined, codes[kind]]).toContain(dropped.get(ticket));
    }),
  );
});
