import type { FleetAnswer, FleetFunctionAnswer, FleetHostAnswer } from '../../api-types.ts';
import { drainQuestion, fleetHeadline, hostNote, hostPage, placesOf, sortHosts } from '../logic/fleet.ts';
import { formatMs } from '../logic/format.ts';
import { answerOf, useAction, usePolled } from '../state.ts';
import { Message, Tile } from './parts.tsx';

/** The hosts of the fleet, as `turntable ps --fleet` shows them. */
export function Fleet({ paused }: { readonly paused: boolean }) {
  const loaded = usePolled<FleetAnswer>('/v2/fleet', 2000, paused);
  const answer = answerOf(loaded);
  return (
    <section aria-labelledby="fleet-title">
      <h1 id="fleet-title">Fleet</h1>
      {loaded.state === 'failed' && <Message text={loaded.message} level="warning" />}
      {answer === undefined ? (
        loaded.state === 'loading' && <Message text="Loading…" />
      ) : (
        <Hosts {...answer} onDrained={loaded.reload} />
      )}
    </section>
  );
}

function Hosts({ fleet, redis, hosts, onDrained }: FleetAnswer & { readonly onDrained: () => void }) {
  const { said, busy, act } = useAction(onDrained);
  const drain = async ({ name, state }: FleetHostAnswer): Promise<void> => {
    const draining = state !== 'draining';
    if (draining && !confirm(drainQuestion(name, hosts))) return;
    await act(
      draining ? `${name} drains` : `${name} takes part again`,
      `/v2/fleet/hosts/${encodeURIComponent(name)}/drain`,
      {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ draining }),
      },
    );
  };
  const sum = (of: (host: FleetHostAnswer) => number): number => hosts.reduce((total, host) => total + of(host), 0);
  const sick = hosts.filter(({ state }) => state === 'sick').length;
  return (
    <>
      {redis.status === 'down' && (
        <Message
          text={`Redis is away: ${redis.reason}. Functions go on serving; nothing can be published or changed.`}
          level="warning"
        />
      )}
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
      {said !== undefined && <Message {...said} />}
      <section class={`card scroll trouble${sick > 0 ? ' warn' : ''}`} aria-labelledby="hosts-title">
        <h2 id="hosts-title">{fleetHeadline({ fleet, hosts })}</h2>
        <table>
          <thead>
            <tr>
              <th>Host</th>
              <th>State</th>
              <th>Cores</th>
              <th>GPUs</th>
              <th title="whose content it has">Functions</th>
              <th>Calls</th>
              <th>Waiting</th>
              <th title="there and back">Way</th>
              <th>Heard</th>
              <th>Version</th>
              <th class="words">Note</th>
              <th aria-label="Drain" />
            </tr>
          </thead>
          <tbody>
            {sortHosts(hosts).map((host) => (
              <tr key={host.name} data-host={host.name}>
                <th scope="row">
                  <HostName host={host} />
                </th>
                <td>
                  <span class={`state ${host.state}`}>{host.state}</span>
                </td>
                <td>{host.cores}</td>
                <td>{host.gpus}</td>
                <td>{host.functions}</td>
                <td>{host.in_flight}</td>
                <td>{host.waiting}</td>
                <td>{host.self ? '–' : formatMs(host.round_trip_ms)}</td>
                <td>{host.self ? '–' : `${formatMs(host.heard_ms_ago)} ago`}</td>
                <td>{host.version}</td>
                <td class="words">{hostNote(host)}</td>
                <td>
                  <button type="button" disabled={busy || host.state === 'sick'} onClick={() => void drain(host)}>
                    {host.state === 'draining' ? 'Take back' : 'Drain'}
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}

function HostName({ host }: { readonly host: FleetHostAnswer }) {
  const page = hostPage(host);
  return host.self || page === undefined ? <>{host.name}</> : <a href={page}>{host.name}</a>;
}

/** Which hosts of the fleet get the calls of a function, and which could. */
export function Homes({ name, paused }: { readonly name: string; readonly paused: boolean }) {
  const loaded = usePolled<FleetFunctionAnswer>(`/v2/fleet/functions/${encodeURIComponent(name)}`, 5000, paused);
  const answer = answerOf(loaded);
  return (
    <section class="card scroll" aria-labelledby="homes-title">
      <h2 id="homes-title">Homes in the fleet</h2>
      {loaded.state === 'failed' && <Message text={loaded.message} level="warning" />}
      {answer !== undefined && (
        <table>
          <thead>
            <tr>
              <th>Host</th>
              <th>Home</th>
              <th>Content</th>
              <th title="as that host says; this one's own is not asked for here">Predicted answer</th>
            </tr>
          </thead>
          <tbody>
            {placesOf(answer).map(({ host, home, hasContent, predictedMs }) => (
              <tr key={host} data-home={host}>
                <th scope="row">{host}</th>
                <td>{home === undefined ? 'no' : home === 1 ? 'first' : `number ${home}`}</td>
                <td>{hasContent ? 'there' : 'not yet'}</td>
                <td>{formatMs(predictedMs)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
