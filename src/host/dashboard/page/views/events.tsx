import type { ComponentChildren } from 'preact';
import type { EventAnswer, RecordedColdStarts } from '../../api-types.ts';
import { formatAgo, formatTime } from '../logic/format.ts';
import { foldEvents, groupName, recordedOf } from '../logic/events.ts';
import { functionLink } from '../logic/route.ts';
import { answerOf, usePolled } from '../state.ts';

const worriesShown = 8;
const rowsShown = 30;

/** The latest events: warnings first, routine folded. */
export function Events({
  events,
  paused,
  named = true,
}: {
  readonly events: readonly EventAnswer[];
  readonly paused: boolean;
  /** False on a function's own page. */
  readonly named?: boolean;
}) {
  const recorded = answerOf(usePolled<RecordedColdStarts>('/api/anatomy/recorded', 10_000, paused))?.coldStarts ?? [];
  const { worries, routine } = foldEvents(events);
  return (
    <section aria-labelledby="events-title" class="card">
      <h2 id="events-title">What happened</h2>
      {events.length === 0 && (
        <p class="muted">
          Nothing yet: cold starts, evictions, breaches of an SLO and lost instances appear here at once.
        </p>
      )}
      {worries.length > 0 && (
        <ol class="events" aria-live={paused ? 'off' : 'polite'}>
          {worries.slice(0, worriesShown).map(({ id, kind, latest, count, sinceMs }) => (
            <EventRow key={id} event={latest} recorded={recorded} named={named} kind={kind} count={count}>
              {count > 1 && (
                <span class="muted">
                  {' '}
                  ({count} events since {formatTime(sinceMs)})
                </span>
              )}
            </EventRow>
          ))}
        </ol>
      )}
      {worries.length > worriesShown && <p class="muted">and {worries.length - worriesShown} more like these</p>}
      {routine.map((group) => (
        <details key={group.id} class="routine" data-kind={group.kind}>
          <summary>
            {groupName(group)} <span class="muted">latest {formatAgo(group.latest.atMs, Date.now())}</span>
          </summary>
          <ol class="events">
            {group.all.slice(0, rowsShown).map((event) => (
              <EventRow
                key={`${event.atMs} ${event.functionName} ${event.text}`}
                event={event}
                recorded={recorded}
                named={named}
                kind={group.kind}
              />
            ))}
          </ol>
        </details>
      ))}
    </section>
  );
}

function EventRow({
  event,
  recorded,
  children,
  named,
  kind,
  count = 1,
}: {
  readonly event: EventAnswer;
  readonly recorded: RecordedColdStarts['coldStarts'];
  readonly children?: ComponentChildren;
  readonly named: boolean;
  readonly kind: string;
  /** Number of events in this row. */
  readonly count?: number;
}) {
  const { atMs, functionName, text, level } = event;
  const anatomy = recordedOf(event, recorded);
  return (
    <li class={level} data-kind={kind} data-count={count}>
      <time dateTime={new Date(atMs).toISOString()} title={formatAgo(atMs, Date.now())}>
        {formatTime(atMs)}
      </time>{' '}
      {named && functionName !== null && <a href={functionLink(functionName)}>{functionName}</a>} {text}
      {children}
      {anatomy !== undefined && (
        <>
          {' '}
          <a href={`#/anatomy/${anatomy.id}`}>its anatomy</a>
        </>
      )}
    </li>
  );
}
