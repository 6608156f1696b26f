/** Reports as events which hosts came, left, were lost, or drain. */
import type { MemberView } from '../../fleet/index.ts';
import type { EventLog } from '../history/index.ts';

export function hostNews(eventLog: EventLog) {
  let before: ReadonlyMap<string, MemberView['state']> | undefined;
  const lost = new Set<string>();
  const add = (level: 'info' | 'warning', message: string): void => eventLog.add({ kind: 'host', level, message });
  const tell = (name: string, was: MemberView['state'] | undefined, state: MemberView['state']): void => {
    if (was === state) return;
    if (state === 'draining') add('info', `Host ${name} drains: it takes no calls of other hosts`);
    else if (was === 'draining') add('info', `Host ${name} takes part again`);
    else add('info', `Host ${name} ${lost.delete(name) ? 'is back in' : 'has joined'} the fleet`);
  };
  return {
    /** Called with the fleet's hosts whenever they have changed; those that are there at first are no news. */
    look(hosts: readonly MemberView[]): void {
      // Sick hosts count as up or draining: only the connection to them has a problem.
      const states = new Map(
        hosts.map(({ name, state, draining }) => [name, state === 'sick' ? (draining ? 'draining' : 'up') : state]),
      );
      const known = before;
      before = states;
      if (known === undefined) return;
      for (const [name, state] of states) tell(name, known.get(name), state);
      for (const name of known.keys()) {
        if (!states.has(name) && !lost.has(name)) add('info', `Host ${name} has left the fleet`);
      }
    },
    /** This host stopped reporting without leaving. */
    lost(name: string): void {
      lost.add(name);
      add('warning', `Host ${name} is lost: it ended without leaving the fleet, or does not reach Redis`);
    },
  };
}
