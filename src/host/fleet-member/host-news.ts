/** Reports as events which hosts came, left, were lost, or drain. */
import type { MemberView } from '../../fleet/index.ts';
import type { EventLog } from '../history/index.ts';

/** Called with the fleet's hosts whenever they are looked at; those that are there at the first look are no news. */
export function hostNews(eventLog: EventLog): (hosts: readonly MemberView[]) => void {
  let before: ReadonlyMap<string, MemberView['state']> | undefined;
  const add = (level: 'info' | 'warning', message: string): void => eventLog.add({ kind: 'host', level, message });
  const tell = (name: string, was: MemberView['state'] | undefined, state: MemberView['state']): void => {
    if (was === state) return;
    if (state === 'lost') {
      add('warning', `Host ${name} is lost: it ended without leaving the fleet, or does not reach Redis`);
    } else if (state === 'draining') add('info', `Host ${name} drains: it takes no calls of other hosts`);
    else if (was === 'draining') add('info', `Host ${name} takes part again`);
    else add('info', `Host ${name} ${was === 'lost' ? 'is back in' : 'has joined'} the fleet`);
  };
  return (hosts) => {
    // Sick hosts count as up or draining: only the connection to them has a problem.
    const states = new Map(
      hosts.map(({ name, state, draining }) => [name, state === 'sick' ? (draining ? 'draining' : 'up') : state]),
    );
    const known = before;
    before = states;
    if (known === undefined) return;
    for (const [name, state] of states) tell(name, known.get(name), state);
    for (const [name, state] of known) {
      if (!states.has(name) && state !== 'lost') add('info', `Host ${name} has left the fleet`);
    }
  };
}
