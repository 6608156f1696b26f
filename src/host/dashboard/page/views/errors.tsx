import type { ErrorsAnswer } from '../../api-types.ts';
import { formatAgo, formatTime } from '../logic/format.ts';
import { TableCard } from './parts.tsx';

/** Why requests were refused or failed, by status; nothing without errors. */
export function Errors({ answer }: { readonly answer: ErrorsAnswer | undefined }) {
  if (answer === undefined || answer.causes.length === 0) return null;
  return (
    <TableCard
      id="errors-title"
      title="Errors by status"
      headings={['Status', 'Requests', 'Latest', { name: 'Cause', words: true }]}
    >
      {answer.causes.map(({ status, code, when, count, lastMs }) => (
        <tr key={`${status} ${code}`} data-code={code}>
          <th scope="row">
            <span class={`state ${status >= 500 ? 'sick' : 'draining'}`}>{status}</span>
          </th>
          <td>{count.toLocaleString('en')}</td>
          <td title={formatAgo(lastMs, Date.now())}>{formatTime(lastMs)}</td>
          <td class="words">
            <strong>{code}</strong> <span class="muted">{when}</span>
          </td>
        </tr>
      ))}
    </TableCard>
  );
}
