import type { HostEvent } from '../history/index.ts';

/** An event in one sentence, and its level: 'warning' if an operator should look at it. */
export function eventText(event: HostEvent): { text: string; level: 'info' | 'warning' } {
  switch (event.kind) {
    case 'cold-start': {
      const { placement, loadMs, latencyMs, withinSlo } = event;
      const outcome = withinSlo ? 'within' : 'beyond';
      return {
        text: `Cold start, ${placement}: loaded for ${ms(loadMs)}, answered after ${ms(latencyMs)}, ${outcome} the SLO`,
        level: withinSlo ? 'info' : 'warning',
      };
    }
    case 'eviction':
      return {
        text: `Left ${event.where} after ${ms(event.ageMs)}: ${event.cause}`,
        level: 'info',
      };
    case 'instance-died':
      return { text: `An instance died: ${event.reason}`, level: 'warning' };
    case 'stopped':
      return { text: `Version ${event.version} gets no process: ${event.reason}`, level: 'warning' };
    case 'reconfiguration':
      return {
        text: `Pool changed to ${event.configuration} in ${ms(event.tookMs)}: ${event.cause}`,
        level: 'info',
      };
    case 'slo-breach': {
      const { late, sloMs } = event;
      return {
        text:
          late === 1
            ? `A call took longer than the SLO of ${ms(sloMs)}`
            : `${late} calls took longer than the SLO of ${ms(sloMs)}`,
        level: 'warning',
      };
    }
    case 'published':
      return { text: `Version ${event.version} was published`, level: 'info' };
    case 'removed':
      return { text: `Version ${event.version} was removed`, level: 'info' };
    case 'traffic':
    case 'host':
      return { text: event.message, level: event.level };
  }
}

function ms(value: number): string {
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 10_000) return `${Math.round(value)} ms`;
  return value < 600_000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value / 60_000)} min`;
}
