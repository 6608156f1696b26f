import type { FleetAnswer, FleetFunctionAnswer, FleetHostAnswer } from '../../../http/fleet-routes.ts';
import { drainQuestion, fleetHeadline, hostNote, hostPage, placesOf, sortHosts } from '../logic/fleet.ts';
import { formatMs } from '../logic/format.ts';
import { useAction, usePolled } from '../state.ts';
import { Message, Polled, TableCard, Tile, type TableRow } from './parts.tsx';

const pathOf = (name: string): string => `/v2/fleet/hosts/${encodeURIComponent(name)}`;

/** The hosts of the fleet, as in `turntable ps --fleet`. */
export function Fleet({ paused }: { readonly paused: boolean }) {
  const loaded = usePolled<FleetAnswer>('/v2/fleet', 2000, paused);
  return (
    <section aria-labelledby="fleet-title">
      <h1 id="fleet-title">Fleet</h1>
      <Polled loaded={loaded}>{(answer) => <Hosts {...answer} onChanged={loaded.reload} />}</Polled>
    </section>
  );
}

function Hosts({ fleet, redis, hosts, onChanged }: FleetAnswer & { readonly onChanged: () => void }) {
  const { said, busy, act } = useAction(onChanged);
  const drain = async ({ name, state }: FleetHostAnswer): Promise<void> => {
    const draining = state !== 'draining';
    if (draining && !confirm(drainQuestion(name, hosts))) return;
    await act(draining ? `${name} drains` : `${name} takes part again`, `${pathOf(name)}/drain`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ draining }),
    });
  };
  const sick = hosts.filter(({ state }) => state === 'sick').length;
  return (
    <>
      {redis.status !== 'up' && (
        <Message
          text={
            redis.status === 'evicting'
              ? `Redis evicts keys: ${redis.reason}. What the hosts share may be lost.`
              : `Redis is ${redis.status}: ${redis.reason}. Calls are answered, and hosts learn of each other's load no more.`
          }
          level="warning"
        />
      )}
      <HostTiles hosts={hosts} sick={sick} />
      {said !== undefined && <Message {...said} />}
      <TableCard
        id="hosts-title"
        title={fleetHeadline({ fleet, hosts })}
        warn={sick > 0}
        headings={[
          'Host',
          'State',
          'Cores',
          'GPUs',
          { name: 'Functions', hint: 'whose content it has' },
          'Calls',
          'Waiting',
          { name: 'Way', hint: 'there and back' },
          'Heard',
          'Version',
          { name: '', hint: 'drain or take back' },
        ]}
        rows={sortHosts(hosts).map((host) => hostRow(host, busy, () => void drain(host)))}
      />
    </>
  );
}

function HostTiles({ hosts, sick }: { readonly hosts: readonly FleetHostAnswer[]; readonly sick: number }) {
  const sum = (of: (host: FleetHostAnswer) => number): number => hosts.reduce((total, host) => total + of(host), 0);
  return (
    <div class="tiles">
      <Tile
        name="Hosts"
        id="fleet-hosts"
        value={String(hosts.length)}
        note={sick === 0 ? 'none is sick' : `${sick} sick`}
        warn={sick > 0}
      />
      <Tile
        name="Calls"
        id="fleet-calls"
        value={String(sum((host) => host.in_flight))}
        note={`in flight, ${sum((host) => host.waiting)} wait`}
      />
      <Tile
        name="Cores"
        id="fleet-cores"
        value={String(sum((host) => host.cores))}
        note={`and ${sum((host) => host.gpus)} GPUs`}
      />
    </div>
  );
}

function hostRow(host: FleetHostAnswer, busy: boolean, onDrain: () => void): TableRow {
  const { name, state, self } = host;
  return {
    key: name,
    marks: { 'data-host': name },
    note: hostNote(host),
    cells: [
      <HostName host={host} />,
      <span class={`state ${state}`}>{state}</span>,
      host.cores,
      host.gpus,
      host.functions,
      host.in_flight,
      host.waiting,
      self ? '–' : formatMs(host.round_trip_ms),
      self ? '–' : `${formatMs(host.heard_ms_ago)} ago`,
      host.version,
      <button type="button" disabled={busy || state === 'sick'} onClick={onDrain}>
        {state === 'draining' ? 'Take back' : 'Drain'}
      </button>,
    ],
  };
}

function HostName({ host }: { readonly host: FleetHostAnswer }) {
  const page = hostPage(host);
  return host.self || page === undefined ? <>{host.name}</> : <a href={page}>{host.name}</a>;
}

/** Which hosts of the fleet get the calls of a function, and which could. */
export function Homes({ name, paused }: { readonly name: string; readonly paused: boolean }) {
  const loaded = usePolled<FleetFunctionAnswer>(`/v2/fleet/functions/${encodeURIComponent(name)}`, 5000, paused);
  return (
    <Polled loaded={loaded}>
      {(answer) => (
        <TableCard
          id="homes-title"
          title="Homes in the fleet"
          headings={[
            'Host',
            'Home',
            'Content',
            { name: 'Predicted answer', hint: "as that host says; this one's own is not asked for here" },
          ]}
          rows={placesOf(answer).map(({ host, home, hasContent, predictedMs }) => ({
            key: host,
            marks: { 'data-home': host },
            cells: [
              host,
              home === undefined ? 'no' : home === 1 ? 'first' : `number ${home}`,
              hasContent ? 'there' : 'not yet',
              formatMs(predictedMs),
            ],
          }))}
        />
      )}
    </Polled>
  );
}
