import type { MissedBy, TroubleAnswer, TroubleRow } from '../../api-types.ts';
import { formatMs, formatShare, formatTime } from '../logic/format.ts';
import type { Range } from '../logic/ranges.ts';
import { functionLink } from '../logic/route.ts';
import { causeShares, causesText, headline, refusedText, saidOnce, spanText } from '../logic/trouble.ts';
import { answerOf, usePolled } from '../state.ts';

const colours: Readonly<Record<MissedBy['cause'], string>> = {
  queue: '--late',
  load: '--cold',
  handler: '--remote',
  model: '--cpu',
  away: '--remote',
  upload: '--accent',
  body: '--text',
  busy: '--migration',
  unexplained: '--muted',
  shed: '--shed',
  failed: '--failed',
};

interface MissedProps {
  readonly row: TroubleRow;
  readonly nowMs: number;
  /** Facts and advice, as far as they are not said of all rows together. */
  readonly own: string;
  /** The function's name comes first, as a link to its page. */
  readonly named?: boolean;
}

/** How many calls of a function missed its SLO, since when, and what they waited for. */
export function Missed({ row, nowMs, own, named = false }: MissedProps) {
  return (
    <>
      <p>
        {named && <a href={functionLink(row.name)}>{row.name}</a>} <strong>{formatShare(row.goodputShare)}</strong>{' '}
        within {formatMs(row.sloMs)}; {row.missed.toLocaleString('en')} of {row.ended.toLocaleString('en')} missed,{' '}
        {spanText(row, nowMs, formatTime)}
        {row.overdue.calls > 0 &&
          `; ${row.overdue.calls.toLocaleString('en')} overdue, the oldest ${formatMs(row.overdue.oldestMs)} old`}
        {row.clientErrors > 0 && `; ${row.clientErrors.toLocaleString('en')} more refused with 400 to 499`}
      </p>
      <span class="causes" aria-hidden="true">
        {causeShares(row.causes).map(({ cause, share }) => (
          <span key={cause} style={{ flexGrow: share, '--series': `var(${colours[cause]})` }} />
        ))}
      </span>
      <p class="muted">
        {causesText(row.causes)}
        {own === '' ? '.' : `: ${own}`}
      </p>
    </>
  );
}

/** Which functions miss their SLO, why, and what to do: the first question in an incident. */
export function Trouble({ range, paused }: { readonly range: Range; readonly paused: boolean }) {
  const answer = answerOf(usePolled<TroubleAnswer>(`/api/trouble?range=${range.id}`, 5000, paused));
  if (answer === undefined) return null;
  const said = saidOnce(answer.worst);
  return (
    <section
      class={`card trouble${answer.missing > 0 || answer.dependencies.length > 0 ? ' warn' : ''}`}
      aria-labelledby="trouble-title"
    >
      <h2 id="trouble-title">{headline(answer)}</h2>
      {answer.dependencies.map(({ dependency, text }) => (
        <p key={dependency} class="dependency">
          <strong>{text}</strong>
        </p>
      ))}
      {said.all !== '' && <p class="muted">All of them: {said.all}</p>}
      {answer.worst.length > 0 && (
        <ol>
          {answer.worst.map((row, at) => (
            <li key={row.name} data-function={row.name}>
              <Missed row={row} nowMs={answer.atMs} own={said.rows[at]!} named />
            </li>
          ))}
        </ol>
      )}
      {answer.limited.map((text) => (
        <p key={text} class="refused">
          {text}
        </p>
      ))}
      {answer.refused.most !== null && (
        <p class="refused">
          {refusedText(answer.refused)} <a href={functionLink(answer.refused.most)}>{answer.refused.most}</a>
        </p>
      )}
    </section>
  );
}
