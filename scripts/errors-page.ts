/** docs/errors.md, written from the catalogue: `npm run docs`. */
import { catalogue, type CatalogueEntry } from '../src/host/errors.ts';

export function renderErrorsPage(): string {
  const entries: [string, CatalogueEntry][] = Object.entries(catalogue);
  const byStatus = entries.toSorted(([, one], [, other]) => one.status - other.status);
  return [
    '# Errors',
    '',
    '<!-- Written by `npm run docs` from src/host/errors.ts; edit that file instead. -->',
    '',
    'Every failure is answered with JSON of one field, `{"error": "..."}`: a sentence that names the tensor, field or',
    'limit. The reply header `X-Turntable-Error` has the code, which does not change when the sentence does.',
    '`Retry-After` says after how many seconds another try can help.',
    '',
    '| Status | Code | When | Retry-After |',
    '| --- | --- | --- | --- |',
    ...byStatus.map(([code, { status, when, retryAfterS }]) => row([status, `\`${code}\``, when, retryAfterS ?? ''])),
    '',
    "A function's handler may answer with a status of its own between 400 and 599; the code is then `handler-input` or",
    '`handler-failed`.',
    '',
  ].join('\n');
}

function row(cells: readonly (string | number)[]): string {
  return `| ${cells.map((cell) => String(cell).replaceAll('|', '\\|')).join(' | ')} |`;
}
