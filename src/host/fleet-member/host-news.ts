/** Reports as events which hosts came, left, were lost, or drain. */
import type { MemberView } from '../../fleet/index.ts';
import type { EventLog } from '../history/index.ts';

export class HostNews {
  readonly #eventLog: EventLog;
  #states: ReadonlyMap<string, MemberView['state']> | undefined;

  constructor(eventLog: EventLog) {
    this.#eventLog = eventLog;
  }

  /** Hosts that are there at the first look are no news. */
  look(hosts: readonly MemberView[]): void {
    // Sick hosts count as up or draining: only the connection to them has a problem.
    const states = new Map(
      hosts.map(({ name, state, draining }) => [name, state === 'sick' ? (draining ? 'draining' : 'up') : state]),
    );
    const before = this.#states;
    this.#states = states;
    if (before === undefined) return;
    for (const [name, state] of states) this.#tell(name, before.get(name), state);
    for (const [name, state] of before) {
      if (!states.has(name) && state !== 'lost') this.#add('info', `Host ${name} has left the fleet`);
    }
  }

  #tell(name: string, before: MemberView['state'] | undefined, state: MemberView['state']): void {
    if (before === state) return;
    if (state === 'lost') {
      this.#add('warning', `Host ${name} is lost: it ended without leaving the fleet, or does not reach Redis`);
    } else if (state === 'draining') this.#add('info', `Host ${name} drains: it takes no calls of other hosts`);
    else if (before === 'draining') this.#add('info', `Host ${name} takes part again`);
    else this.#add('info', `Host ${name} ${before === 'lost' ? 'is back in' : 'has joined'} the fleet`);
  }

  #add(level: 'info' | 'warning', message: string): void {
    this.#eventLog.add({ kind: 'host', level, message });
  }
}
