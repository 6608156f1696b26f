/** Metrics of a host in a fleet. Absent without one. */
import type { FleetMember } from '../fleet-member/index.ts';
import type { Exposition } from './exposition.ts';

export function addFleetMetrics({ counter, gauge }: Exposition, fleet: FleetMember): void {
  gauge('turntable_fleet_hosts', 'Hosts of the fleet as this one sees them', (set) => {
    const counts = { up: 0, draining: 0, sick: 0 };
    for (const { state } of fleet.view()) counts[state]++;
    for (const [state, count] of Object.entries(counts)) set({ state }, count);
  });
  gauge('turntable_fleet_round_trip_seconds', 'The way to another host and back', (set) => {
    for (const { name, isSelf, roundTripMs } of fleet.view()) {
      if (!isSelf && roundTripMs !== undefined) set({ host: name }, roundTripMs / 1000);
    }
  });
  counter('turntable_fleet_passed_total', 'Calls of this host that another one ran, and why there', (add) => {
    for (const { host, reason, count } of fleet.routing?.passedCounts() ?? []) add({ host, reason }, count);
  });
  counter(
    'turntable_fleet_taken_total',
    'Calls of other hosts that this one was given',
    () => fleet.routing?.taken ?? 0,
  );
  counter(
    'turntable_fleet_ran_again_total',
    'Calls that ran elsewhere, their host being lost with them',
    () => fleet.routing?.ranAgain ?? 0,
  );
}
