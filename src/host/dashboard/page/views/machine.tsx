import type { MachineAnswer } from '../../api-types.ts';
import { formatBytes, formatMs, formatShare } from '../logic/format.ts';
import { functionLink } from '../logic/route.ts';
import { line, Plot } from '../plot.tsx';
import { usePolled } from '../state.ts';
import { Polled, TableCard, Tile } from './parts.tsx';

const gpuColours = ['--good', '--remote', '--cold', '--migration', '--late', '--shed', '--cpu', '--failed'] as const;
const everyMs = 5000;
const redisNotes: Readonly<Record<MachineAnswer['redis'], string>> = {
  off: 'this host has no Redis',
  down: 'Redis is down',
  full: 'the memory of Redis is full',
  'read-only': 'Redis takes no writes',
  evicting: 'Redis evicts keys',
  up: 'share one Redis with this host',
};

/** How busy cores, GPUs, queues and workers are. */
export function Machine({ paused }: { readonly paused: boolean }) {
  const loaded = usePolled<MachineAnswer>('/api/machine', everyMs, paused);
  return (
    <section aria-labelledby="machine-title">
      <h1 id="machine-title">Machine</h1>
      <Polled loaded={loaded}>{(answer) => <Busy {...answer} />}</Polled>
    </section>
  );
}

function Busy(props: MachineAnswer) {
  const { cores, gpus, waiting, inFlight, queues, workers, redis, calledAs, usage } = props;
  const coresNow = usage.cores.at(-1) ?? null;
  return (
    <>
      <div class="tiles">
        <Tile
          name="Cores"
          id="m-cores"
          value={formatShare(coresNow)}
          note={`of the machine busy${splitText(coresNow, usage.ownCores.at(-1) ?? null)}; models may use ${cores.total}`}
          warn={coresNow !== null && coresNow > 0.95}
        />
        <Tile
          name="Instances"
          id="m-instances"
          value={`${cores.busyInstances} of ${cores.instances}`}
          note="run a model in the CPU pools now"
        />
        <GpuTiles gpus={gpus} />
        <Tile name="Waiting" id="m-waiting" value={String(waiting)} note={`${inFlight} in flight`} />
        <Tile
          name="Workers"
          id="m-workers"
          value={redis === 'off' ? '–' : String(workers.length)}
          note={redisNotes[redis]}
          warn={redis !== 'off' && redis !== 'up'}
        />
      </div>
      <MachinePlots {...props} />
      {gpus.length > 0 && <Gpus gpus={gpus} />}
      <TableCard
        id="queues-title"
        title="Queues"
        empty="No call waits for a turn."
        headings={['Function', 'Waiting']}
        rows={queues.map(({ functionName, version, waiting: calls }) => ({
          key: `${functionName}@${version}`,
          cells: [
            <>
              <a href={functionLink(functionName)}>{functionName}</a> <span class="muted">version {version}</span>
            </>,
            calls,
          ],
        }))}
      />
      <Workers workers={workers} redis={redis} calledAs={calledAs} />
    </>
  );
}

function MachinePlots({ gpus, waiting, inFlight, redis, usage }: MachineAnswer) {
  return (
    <div class="plots">
      <Plot
        title={`Busy share of cores${gpus.length === 0 ? '' : ' and GPUs'}, the last hour`}
        summary={[
          `cores ${formatShare(usage.cores.at(-1) ?? null)}`,
          ...gpus.map(({ index, busyShare }) => `GPU ${index} ${formatShare(busyShare)}`),
        ].join(', ')}
        atMs={usage.atMs}
        format={formatShare}
        series={[
          line('Cores, by all programs', '--text', usage.cores),
          line('Cores, by Turntable', '--cpu', usage.ownCores),
          ...usage.gpus.map((shares, gpu) => line(`GPU ${gpu}`, gpuColours[gpu % gpuColours.length]!, shares)),
        ]}
      />
      {gpus.length > 0 && (
        <Plot
          title="Copies over the GPUs' links, both ways"
          summary={usage.links.map((rates, gpu) => `GPU ${gpu} ${formatBytes(rates.at(-1) ?? 0)}/s`).join(', ')}
          atMs={usage.atMs}
          format={(value) => `${formatBytes(value)}/s`}
          series={usage.links.map((rates, gpu) =>
            line(`Link of GPU ${gpu}`, gpuColours[gpu % gpuColours.length]!, rates),
          )}
        />
      )}
      <Plot
        title="Calls that wait, run, or are at workers"
        summary={`${waiting} wait, ${inFlight} in flight`}
        atMs={usage.atMs}
        format={(value) => String(Number(value.toFixed(value < 10 ? 2 : 0)))}
        series={[
          line('In flight', '--cpu', usage.inFlight),
          line('Waiting', '--late', usage.waiting),
          ...(redis === 'off' ? [] : [line('At workers', '--remote', usage.atWorkers)]),
        ]}
      />
    </div>
  );
}

function Workers({ workers, redis, calledAs }: Pick<MachineAnswer, 'workers' | 'redis' | 'calledAs'>) {
  return (
    <TableCard
      id="workers-title"
      title="Workers"
      empty={
        redis === 'off'
          ? 'With Redis (--redis URL), workers on other machines take what this host has no core free for.'
          : `None. Start one on any machine: ${calledAs} worker --redis URL`
      }
      headings={['Worker', 'Cores', 'Calls', 'Backlog', 'Functions']}
      rows={workers.map(({ name, cores, outstanding, backlogMs, draining, functions }) => ({
        key: name,
        marks: { 'data-worker': name },
        cells: [
          <>
            {name} {draining && <span class="muted">draining</span>}
          </>,
          cores,
          outstanding,
          formatMs(backlogMs),
          functions,
        ],
      }))}
    />
  );
}

type Gpus = MachineAnswer['gpus'];

const linkNote = ({ link }: Gpus[number]): string =>
  link === null
    ? 'not measured yet'
    : `${formatBytes(link.fromHostBytesPerSecond)}/s in, ${formatBytes(link.toHostBytesPerSecond)}/s out`;

/** Only the busiest GPU and the busiest link: there may be sixteen. */
function GpuTiles({ gpus }: { readonly gpus: Gpus }) {
  const most = (share: (gpu: Gpus[number]) => number): Gpus[number] | undefined =>
    gpus.toSorted((one, other) => share(other) - share(one))[0];
  const busiest = most(({ busyShare }) => busyShare);
  const fullest = most(({ link }) => link?.share ?? 0);
  if (busiest === undefined || fullest === undefined) return null;
  const name = ({ index }: Gpus[number]): string => (gpus.length === 1 ? '' : `GPU ${index} most: `);
  const linkShare = fullest.link?.share ?? null;
  return (
    <>
      <Tile
        name="GPUs"
        id="m-gpus"
        value={formatShare(busiest.busyShare)}
        note={`${name(busiest)}${busiest.name}`}
        warn={busiest.busyShare > 0.95}
      />
      <Tile
        name="Links"
        id="m-links"
        value={formatShare(linkShare)}
        note={`${name(fullest)}${linkNote(fullest)}`}
        warn={linkShare !== null && linkShare > 0.95}
      />
    </>
  );
}

function Gpus({ gpus }: { readonly gpus: Gpus }) {
  return (
    <TableCard
      id="gpus-title"
      title="GPUs"
      headings={[
        'GPU',
        'Busy',
        { name: 'Link', hint: 'of the speed measured for the busier way' },
        'In',
        'Out',
        'Memory',
        'Functions',
        'Loading',
        { name: 'Name', words: true },
      ]}
      rows={gpus.map(({ index, name, busyShare, link, usedBytes, capacityBytes, functions, loading }) => ({
        key: index,
        marks: { 'data-gpu': index },
        cells: [
          index,
          formatShare(busyShare),
          formatShare(link?.share ?? null),
          link === null ? '–' : `${formatBytes(link.fromHostBytesPerSecond)}/s`,
          link === null ? '–' : `${formatBytes(link.toHostBytesPerSecond)}/s`,
          `${formatBytes(usedBytes)} of ${formatBytes(capacityBytes)}`,
          functions,
          loading,
          name,
        ],
      }))}
    />
  );
}

/** ': 10.0% by Turntable, 90.0% by others' */
function splitText(busy: number | null, own: number | null): string {
  if (busy === null || own === null) return '';
  return `: ${formatShare(Math.min(own, busy))} by Turntable, ${formatShare(Math.max(0, busy - own))} by others`;
}
