import { useState } from 'preact/hooks';
import type { MemoryAnswer, Resident } from '../../api-types.ts';
import { formatAgo, formatBytes } from '../logic/format.ts';
import { idleness, memoryBlocks } from '../logic/memory-map.ts';
import { functionLink } from '../logic/route.ts';
import { usePolled } from '../state.ts';
import { Message, Polled, Table, TableCard } from './parts.tsx';

export function Memory({ paused }: { readonly paused: boolean }) {
  const loaded = usePolled<MemoryAnswer>('/api/memory', 2000, paused);
  return <Polled loaded={loaded}>{(answer) => <Memories {...answer} />}</Polled>;
}

function Memories({ gpus, host, disk }: MemoryAnswer) {
  const diskBytes = disk.residents.reduce((sum, { bytes }) => sum + bytes, 0);
  return (
    <section aria-labelledby="memory-title">
      <h1 id="memory-title">Memory</h1>
      <p class="muted">
        To scale. A block fades the longer its function was not used; point at it, or tab to it, to see why it is there.
      </p>
      {gpus.length === 0 && <Message text="This host drives no GPU: functions run in the CPU pools." />}
      {gpus.map((gpu) => (
        <Strip
          key={gpu.uuid}
          title={`GPU ${gpu.index}: ${gpu.name}`}
          capacityBytes={gpu.capacityBytes}
          residents={gpu.residents}
        />
      ))}
      <Strip title="Host memory" capacityBytes={host.totalBytes} residents={host.residents} />
      <Division {...host} />
      <Strip title="Disk" capacityBytes={diskBytes} residents={disk.residents} />
    </section>
  );
}

/** How host memory is divided, and what became of it when it was short. */
function Division({ totalBytes, parts, kills }: MemoryAnswer['host']) {
  const nowMs = Date.now();
  const leftBytes = totalBytes - parts.reduce((sum, { bytes }) => sum + bytes, 0);
  return (
    <>
      {kills.map(({ atMs, text }) => (
        <Message key={`${atMs} ${text}`} text={`${formatAgo(atMs, nowMs)}: ${text}.`} />
      ))}
      <TableCard id="division-title" title="Division of host memory" headings={['Bytes', { name: 'For', words: true }]}>
        {[...parts, { part: 'free', words: 'left free', bytes: Math.max(0, leftBytes) }].map(
          ({ part, words, bytes }) => (
            <tr key={part}>
              <th scope="row">{formatBytes(bytes)}</th>
              <td class="words">{words}</td>
            </tr>
          ),
        )}
      </TableCard>
    </>
  );
}

/** The most recently used ones; the table of functions has the rest. */
const entriesMax = 500;
/** A memory of which less than this part is in use is drawn as a close-up. */
const closeUpBelow = 8;

interface StripProps {
  readonly title: string;
  readonly capacityBytes: number;
  readonly residents: readonly Resident[];
}

function Strip({ title, capacityBytes, residents }: StripProps) {
  const [pointed, setPointed] = useState<Resident | undefined>(undefined);
  const nowMs = Date.now();
  const usedBytes = residents.reduce((sum, { bytes }) => sum + bytes, 0);
  // Otherwise functions in a large memory would be lines too thin to point at.
  const isCloseUp = usedBytes > 0 && usedBytes < capacityBytes / closeUpBelow;
  const { blocks, small } = memoryBlocks(residents, isCloseUp ? usedBytes : capacityBytes);
  return (
    <section class="card" aria-label={title}>
      <h2>
        {title}{' '}
        <span class="muted">
          {formatBytes(usedBytes)} of {formatBytes(capacityBytes)}, {residents.length} entries
          {isCloseUp && '; only what is used is drawn'}
        </span>
      </h2>
      <ul class="strip">
        {blocks.map(({ resident, share }) => (
          <li
            key={`${resident.functionName} ${resident.version} ${resident.why}`}
            style={{ width: `${share * 100}%`, '--idle': idleness(resident.lastUseMs, nowMs).toFixed(2) }}
          >
            <a
              href={functionLink(resident.functionName)}
              aria-label={sentence(resident, nowMs)}
              onMouseEnter={() => setPointed(resident)}
              onFocus={() => setPointed(resident)}
            >
              {resident.functionName}
            </a>
          </li>
        ))}
        {small.count > 0 && (
          <li
            class="small"
            style={{ width: `${Math.max(small.share * 100, 0.5)}%` }}
            title={`${small.count} small ones`}
          />
        )}
      </ul>
      <p class="pointed" aria-live="polite">
        {pointed === undefined ? (
          <span class="muted">{stripNote(residents.length, small.count)}</span>
        ) : (
          sentence(pointed, nowMs)
        )}
      </p>
      {residents.length > 0 && (
        <details>
          <summary>All {residents.length} entries</summary>
          <div class="scroll">
            <Table class="residents" headings={['Function', 'Version', 'Bytes', 'State', 'Last use', 'Why']}>
              {residents
                .toSorted((one, other) => other.lastUseMs - one.lastUseMs)
                .slice(0, entriesMax)
                .map((resident) => (
                  <tr key={`${resident.functionName} ${resident.version} ${resident.why}`}>
                    <th scope="row">
                      <a href={functionLink(resident.functionName)}>{resident.functionName}</a>
                    </th>
                    <td>{resident.version}</td>
                    <td>{formatBytes(resident.bytes)}</td>
                    <td>{resident.state}</td>
                    <td>{formatAgo(resident.lastUseMs, nowMs)}</td>
                    <td>{resident.why}</td>
                  </tr>
                ))}
            </Table>
          </div>
        </details>
      )}
    </section>
  );
}

/** The note if the pointer is on no block. */
function stripNote(count: number, small: number): string {
  if (count === 0) return 'Nothing is in it.';
  return small === 0 ? ' ' : `the grey end stands for ${small} more, too small to be drawn`;
}

function sentence({ functionName, version, bytes, state, lastUseMs, why }: Resident, nowMs: number): string {
  return (
    `${functionName} version ${version}, ${formatBytes(bytes)}, ${state}, last used ` +
    `${formatAgo(lastUseMs, nowMs)}: ${why}`
  );
}
