import { useState } from 'preact/hooks';
import type { MemoryAnswer, Resident } from '../../api-types.ts';
import { formatAgo, formatBytes } from '../logic/format.ts';
import { fullShare, hasLimit, idleness, isFull, memoryBlocks } from '../logic/memory-map.ts';
import { functionLink } from '../logic/route.ts';
import { usePolled } from '../state.ts';
import { Message, Polled, Table, TableCard } from './parts.tsx';

export function Memory({ paused }: { readonly paused: boolean }) {
  const loaded = usePolled<MemoryAnswer>('/api/memory', 2000, paused);
  return <Polled loaded={loaded}>{(answer) => <Memories {...answer} />}</Polled>;
}

function Memories({ gpus, host, disk }: MemoryAnswer) {
  const { shared = 0, cpuCache = 0, gpuCache = 0 } = disk.parts ?? {};
  const onDiskBytes = disk.residents.reduce((sum, { bytes }) => sum + bytes, shared + cpuCache + gpuCache);
  const part = (name: string) => host.parts.find((each) => each.part === name) ?? { bytes: 0, usedBytes: 0 };
  const [sessions, pinned] = [part('sessions'), part('pinned')];
  return (
    <section aria-labelledby="memory-title">
      <h1 id="memory-title">Memory</h1>
      <p class="muted">
        To scale. A block fades the longer its function was not used; point at it, or tab to it, to see why it is there.
      </p>
      {gpus.map((gpu) => (
        <Strip
          key={gpu.uuid}
          title={`GPU ${gpu.index}: ${gpu.name}`}
          capacityBytes={gpu.capacityBytes}
          residents={gpu.residents}
        />
      ))}
      <Strip
        title="Sessions on CPU cores"
        capacityBytes={sessions.bytes}
        usedBytes={sessions.usedBytes}
        limit="cpu.memory"
        residents={host.sessions}
      />
      {gpus.length > 0 && (
        <Strip
          title="Pinned host memory"
          capacityBytes={pinned.bytes}
          usedBytes={pinned.usedBytes}
          limit="gpu.hostMemory"
          residents={host.pinned}
        />
      )}
      <Division {...host} />
      <Strip
        title="Disk"
        capacityBytes={onDiskBytes + (disk.freeBytes ?? 0)}
        free={disk}
        usedBytes={onDiskBytes}
        residents={disk.residents}
        rest={[
          ...(shared > 0 ? [`${formatBytes(shared)} that versions share`] : []),
          ...(cpuCache > 0 ? [`${formatBytes(cpuCache)} prepared for CPU instances`] : []),
          ...(gpuCache > 0 ? [`${formatBytes(gpuCache)} prepared for GPUs`] : []),
        ].join(', ')}
      />
    </section>
  );
}

/** How host memory is divided, and what became of it when it was short. */
function Division({ totalBytes, parts, processes, kills }: MemoryAnswer['host']) {
  const nowMs = Date.now();
  const leftBytes = Math.max(0, totalBytes - parts.reduce((sum, { bytes }) => sum + bytes, 0));
  return (
    <>
      {kills.map(({ atMs, text }) => (
        <Message key={`${atMs} ${text}`} text={`${formatAgo(atMs, nowMs)}: ${text}.`} />
      ))}
      <TableCard
        id="division-title"
        title={`Host memory: ${formatBytes(totalBytes)}, divided`}
        headings={[{ name: 'For', words: true }, 'Used', 'Limit']}
        rows={[
          ...parts.map((part) => ({
            key: part.part,
            marks: { 'data-part': part.part },
            cells: [
              part.words,
              <span class={isFull(part) ? 'warning' : undefined}>{formatBytes(part.usedBytes)}</span>,
              hasLimit(part) ? (
                formatBytes(part.bytes)
              ) : (
                <span class="muted">{`${formatBytes(part.bytes)} set aside`}</span>
              ),
            ],
          })),
          { key: '', cells: ['left free', '–', formatBytes(leftBytes)] },
        ]}
      />
      <Processes processes={processes} />
    </>
  );
}

const processesMax = 100;

/** The host's processes as `top` lists them. */
function Processes({ processes }: Pick<MemoryAnswer['host'], 'processes'>) {
  if (processes.length === 0) return null;
  const bytes = processes.reduce((sum, each) => sum + each.bytes, 0);
  return (
    <section class="card" aria-label="Processes">
      <details>
        <summary>
          <h2>Processes</h2>{' '}
          <span class="muted">
            {processes.length}, {formatBytes(bytes)} resident, where pages that they share count in each
          </span>
        </summary>
        <Table
          headings={[{ name: 'For', words: true }, 'PID', { name: 'Resident', hint: 'RES of top' }]}
          rows={processes
            .slice(0, processesMax)
            .map(({ pid, bytes: resident, words }) => ({ key: pid, cells: [words, pid, formatBytes(resident)] }))}
        />
      </details>
    </section>
  );
}

/** The most recently used ones; the table of functions has the rest. */
const entriesMax = 500;
/** A memory of which less than this part is in use is drawn as a close-up. */
const closeUpBelow = 8;

interface StripProps {
  readonly title: string;
  readonly capacityBytes: number;
  /** Default: what the residents have together. */
  readonly usedBytes?: number;
  /** The option that sets the capacity. */
  readonly limit?: string;
  /** Instead of a capacity: what is left of a disk that others use too. */
  readonly free?: Pick<MemoryAnswer['disk'], 'freeBytes' | 'totalBytes'>;
  readonly residents: readonly Resident[];
  /** What is used beside the residents. */
  readonly rest?: string;
}

function Strip({ title, capacityBytes, usedBytes: used, limit, free, residents, rest = processesWords }: StripProps) {
  const [pointed, setPointed] = useState<Resident | undefined>(undefined);
  const nowMs = Date.now();
  const residentBytes = residents.reduce((sum, { bytes }) => sum + bytes, 0);
  const usedBytes = used ?? residentBytes;
  // Otherwise functions in a large memory would be lines too thin to point at.
  const isCloseUp = usedBytes > 0 && usedBytes < capacityBytes / closeUpBelow;
  const { blocks, small } = memoryBlocks(residents, isCloseUp ? usedBytes : capacityBytes);
  const restShare = (usedBytes - residentBytes) / Math.max(usedBytes, isCloseUp ? 0 : capacityBytes, 1);
  return (
    <section class="card" aria-label={title}>
      <h2>
        {title}{' '}
        <span class={free === undefined && usedBytes > fullShare * capacityBytes ? 'warning' : 'muted'}>
          {formatBytes(usedBytes)}
          {free === undefined && ` of ${formatBytes(capacityBytes)}`}
          {limit !== undefined && ` (${limit})`}
          {typeof free?.freeBytes === 'number' &&
            `; ${formatBytes(free.freeBytes)} of ${formatBytes(free.totalBytes ?? 0)} free`}
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
        {restShare > 0 && (
          <li
            class="rest"
            style={{ width: `${restShare * 100}%` }}
            title={`${formatBytes(usedBytes - residentBytes)}: ${rest}`}
          />
        )}
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
          <span class="muted">
            {[
              stripNote(residents.length, restShare > 0, small.count),
              ...(restShare > 0 ? [`${formatBytes(usedBytes - residentBytes)} are ${rest}`] : []),
            ]
              .filter((note) => note !== '')
              .join('; ')}
          </span>
        ) : (
          sentence(pointed, nowMs)
        )}
      </p>
      {residents.length > 0 && (
        <details>
          <summary>{residents.length === 1 ? 'The only entry' : `All ${residents.length} entries`}</summary>
          <div class="scroll">
            <Table
              headings={['Function', 'Version', 'Bytes', 'State', 'Last use', 'Why']}
              rows={residents
                .toSorted((one, other) => other.lastUseMs - one.lastUseMs)
                .slice(0, entriesMax)
                .map((resident) => ({
                  key: `${resident.functionName} ${resident.version} ${resident.why}`,
                  cells: [
                    <a href={functionLink(resident.functionName)}>{resident.functionName}</a>,
                    resident.version,
                    formatBytes(resident.bytes),
                    resident.state,
                    formatAgo(resident.lastUseMs, nowMs),
                    resident.why,
                  ],
                }))}
            />
          </div>
        </details>
      )}
    </section>
  );
}

const processesWords = 'the processes themselves, and those kept ready without a model';

/** The note if the pointer is on no block. */
function stripNote(count: number, hasRest: boolean, small: number): string {
  if (count === 0) return hasRest ? 'no model is in it' : 'Nothing is in it.';
  return small === 0 ? '' : `the grey end stands for ${small} more, too small to be drawn`;
}

function sentence({ functionName, version, bytes, state, lastUseMs, why }: Resident, nowMs: number): string {
  return (
    `${functionName} version ${version}, ${formatBytes(bytes)}, ${state}, last used ` +
    `${formatAgo(lastUseMs, nowMs)}: ${why}`
  );
}
