import type { TroubleAnswer } from '../../api-types.ts';
import { formatMs, formatShare } from '../logic/format.ts';
import type { Range } from '../logic/ranges.ts';
import { functionLink } from '../logic/route.ts';
import { adviceFor, causeShares, causesText, headline, refusedText } from '../logic/trouble.ts';
import { answerOf, usePolled } from '../state.ts';

/** Which functions miss their SLO, why, and what to do: the first question in an incident. */
export function Trouble({ range, paused }: { readonly range: Range; readonly paused: boolean }) {
  const answer = answerOf(usePolled<TroubleAnswer>(`/api/trouble?range=${range.id}`, 5000, paused));
  if (answer === undefined) return null;
  return (
    <section class={`card trouble${answer.missing > 0 ? ' warn' : ''}`} aria-labelledby="trouble-title">
      <h2 id="trouble-title">{headline(answer)}</h2>
      {answer.worst.length > 0 && (
        <ol>
          {answer.worst.map(({ name, sloMs, missed, ended, goodputShare, causes, clientErrors }) => (
            <li key={name} data-function={name}>
              <p>
                <a href={functionLink(name)}>{name}</a> <strong>{formatShare(goodputShare)}</strong> within{' '}
                {formatMs(sloMs)}; {missed.toLocaleString('en')} of {ended.toLocaleString('en')} missed
                {clientErrors > 0 && `, and ${clientErrors.toLocaleString('en')} refused for the caller's own mistake`}
              </p>
              <span class="causes" aria-hidden="true">
                {causeShares(causes).map(({ cause, share }) => (
                  <span key={cause} class={cause} style={{ flexGrow: share }} />
                ))}
              </span>
              <p class="muted">
                {causesText(causes)}. {adviceFor(causes)}
              </p>
            </li>
          ))}
        </ol>
      )}
      {answer.refused.most !== null && (
        <p class="refused">
          {refusedText(answer.refused)} <a href={functionLink(answer.refused.most)}>{answer.refused.most}</a>
        </p>
      )}
    </section>
  );
}
