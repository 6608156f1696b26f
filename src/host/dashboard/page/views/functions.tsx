import { useMemo, useState } from 'preact/hooks';
import type { FunctionRow, FunctionsAnswer } from '../../api-types.ts';
import { filterRows, nextSort, sortRows, type Sort, type SortKey } from '../logic/function-table.ts';
import { formatAgo, formatBytes, formatMs, formatRate, formatShare } from '../logic/format.ts';
import { functionLink } from '../logic/route.ts';
import { answerOf, usePolled } from '../state.ts';
import type { TimeProps } from './overview.tsx';
import { Polled, RangePicker } from './parts.tsx';

const headings: readonly (readonly [SortKey, string, string])[] = [
  ['name', 'Function', ''],
  ['residency', 'State', 'Where its model is now'],
  ['sloMs', 'SLO', ''],
  ['goodput', 'Goodput', 'Answered within the SLO, of all that ended'],
  ['p99', 'p99', ''],
  ['rate', 'Rate', 'Invocations offered'],
  ['cold', 'Cold', 'Share of the answers that waited for weights'],
  ['gpuBytes', 'GPU', 'Bytes on GPUs'],
  ['hostBytes', 'Host', 'Memory of its sessions, and its weights in pinned memory'],
  ['diskBytes', 'Disk', ''],
  ['lastUse', 'Last use', ''],
];
/** Nobody reads more rows, and they slow the browser down; the filter finds the others. */
const rowsMax = 500;

export function Functions({ range, onRange, paused, onPause }: TimeProps) {
  const loaded = usePolled<FunctionsAnswer>(`/api/functions?range=${range.id}`, 5000, paused);
  const [sort, setSort] = useState<Sort>({ key: 'goodput', descending: false });
  const [filter, setFilter] = useState('');
  const answer = answerOf(loaded);
  const rows = useMemo(() => sortRows(filterRows(answer?.functions ?? [], filter), sort), [answer, filter, sort]);
  return (
    <section aria-labelledby="functions-title">
      <div class="bar">
        <h1 id="functions-title">Functions</h1>
        <RangePicker {...{ range, onRange, paused, onPause }} />
      </div>
      <div class="controls">
        <input
          type="search"
          aria-label="Filter functions"
          placeholder="a name, is:missing, is:gpu, is:cold, is:pinned"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <a class="button" href="#/publish">
          Publish a model
        </a>
      </div>
      <Polled loaded={loaded}>
        {({ functions, atMs }) => {
          const hasGpus = functions.some(({ gpuState }) => gpuState !== null);
          return (
            <div class="scroll">
              <table class="labelled sorted">
                <caption class="muted">
                  {rows.length} of {functions.length} functions
                  {rows.length > rowsMax ? `, the first ${rowsMax} shown` : ''}
                </caption>
                <thead>
                  <tr>
                    {headings
                      .filter(([key]) => hasGpus || key !== 'gpuBytes')
                      .map(([key, label, hint]) => (
                        <th
                          scope="col"
                          key={key}
                          title={hint}
                          aria-sort={sort.key !== key ? 'none' : sort.descending ? 'descending' : 'ascending'}
                        >
                          <button type="button" onClick={() => setSort(nextSort(sort, key))}>
                            {label}
                            <span aria-hidden="true">{sort.key !== key ? '' : sort.descending ? ' ↓' : ' ↑'}</span>
                          </button>
                        </th>
                      ))}
                    <th scope="col">Plan</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.slice(0, rowsMax).map((row) => (
                    <Row key={row.name} row={row} nowMs={atMs} hasGpus={hasGpus} />
                  ))}
                </tbody>
              </table>
            </div>
          );
        }}
      </Polled>
    </section>
  );
}

function Row({
  row,
  nowMs,
  hasGpus,
}: {
  readonly row: FunctionRow;
  readonly nowMs: number;
  readonly hasGpus: boolean;
}) {
  return (
    <tr data-function={row.name}>
      <th scope="row">
        <a href={functionLink(row.name)}>{row.name}</a>
        {row.pinned && <span class="tag">pinned</span>}
      </th>
      <td data-label="State">
        <span class={`state ${row.state === 'ready' ? row.residency : 'unavailable'}`} title={row.reason ?? ''}>
          {row.state === 'ready' ? row.residency : row.state}
        </span>
      </td>
      <td data-label="SLO">{formatMs(row.sloMs)}</td>
      <td data-label="Goodput" class={row.goodputShare !== null && row.goodputShare < 0.99 ? 'warning' : ''}>
        {formatShare(row.goodputShare)}
      </td>
      <td data-label="p99" class={row.totals.p99Ms !== null && row.totals.p99Ms > row.sloMs ? 'warning' : ''}>
        {formatMs(row.totals.p99Ms)}
      </td>
      <td data-label="Rate">{formatRate(row.requestsPerSecond)}</td>
      <td data-label="Cold">{formatShare(row.coldShare)}</td>
      {hasGpus && <td data-label="GPU">{row.gpuBytes === 0 ? '–' : formatBytes(row.gpuBytes)}</td>}
      <td data-label="Host">{row.hostBytes === 0 ? '–' : formatBytes(row.hostBytes)}</td>
      <td data-label="Disk">{formatBytes(row.diskBytes)}</td>
      <td data-label="Used">{formatAgo(row.lastUseMs, nowMs)}</td>
      <td data-label="Plan" class={row.plan === '' ? 'none' : undefined}>
        {row.plan}
      </td>
    </tr>
  );
}
