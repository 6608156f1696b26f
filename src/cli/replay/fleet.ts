/** `--hosts` and what goes with it: a replay over the hosts of a fleet. */
import { Command, InvalidArgumentError, type OptionsOf } from '../commander.ts';
import type { Machine } from '../../hardware/index.ts';
import { fleetRouters, type FleetSettings } from '../../replay/index.ts';
import type { SettingValue } from '../../report/index.ts';
import { given } from '../../tools/index.ts';
import { usage } from '../error.ts';
import { flagOf, oneOf, parseBytes, parseCount, parseDurationMs, parseGroups, parsePositive } from '../values.ts';

/** Between machines of one rack. */
const roundTripMsDefault = 0.3;
/** 25 Gbit/s. */
const networkGBpsDefault = 3.125;
const callBytesDefault = 64 * 1024;

export function fleetFlags() {
  return new Command()
    .optionsGroup('Several hosts:')
    .option('--hosts <number>', 'so many of the machine, as a fleet', parseCount)
    .option(
      '--host-machines <list>',
      'or a fleet of different machines, in place of --machine: p3.8xlarge=2,h200=1; hosts are numbered in that order',
      parseGroups,
    )
    .option(
      '--router <how>',
      `which host runs a call: ${fleetRouters.join(', ')}; homes where nothing is said`,
      oneOf(fleetRouters),
    )
    .option(
      '--fail-host <host@time+time>',
      'a host ends without a word: 3@60s; 3@60s+30s comes back after 30 s. Several by commas',
      failuresOf('host'),
    )
    .option('--round-trip <time>', 'between two hosts; 0.3ms where nothing is said', parseDurationMs)
    .option('--network <GB/s>', 'of each host; 3.125 where nothing is said', parsePositive)
    .option(
      '--call-size <size>',
      'of a call that is passed on, with its answer; 64KiB where nothing is said',
      parseBytes,
    );
}

export type FleetOptions = OptionsOf<ReturnType<typeof fleetFlags>>;

/** A host or a GPU that fails, by number. */
export interface Failure {
  readonly number: number;
  readonly atMs: number;
  /** Infinity: it stays away. */
  readonly backMs: number;
}

/** '3@60s', '3@60s+30s,0@90s'. @param what fails */
export const failuresOf =
  (what: 'host' | 'GPU') =>
  (text: string): Failure[] => {
    const failures = text.split(',').map((part): Failure => {
      const [, number, at = '', away] = /^\s*(\d+)@([^+]+)(?:\+(.+))?$/.exec(part) ?? [];
      if (number === undefined)
        throw new InvalidArgumentError(`'${part}' is no failure of a ${what} such as 3@60s or 3@60s+30s.`);
      const atMs = parseDurationMs(at);
      return { number: Number(number), atMs, backMs: away === undefined ? Infinity : atMs + parseDurationMs(away) };
    });
    for (const [index, { number, atMs, backMs }] of failures.entries()) {
      // Those that are written first may be later.
      const isBoth = failures.slice(0, index).some((other) => {
        return other.number === number && other.backMs > atMs && backMs > other.atMs;
      });
      if (isBoth) throw new InvalidArgumentError(`${what} ${number} fails again before it is back.`);
    }
    return failures;
  };

/** @throws CliError for one that is not there */
export function checkFailures(flag: string, what: string, failures: readonly Failure[], count: number): void {
  const wrong = failures.find(({ number }) => number >= count);
  if (wrong === undefined) return;
  const there = count === 0 ? 'there is none' : `the ${what}s are 0 to ${count - 1}`;
  throw usage(`${flag} names ${what} ${wrong.number}, but ${there}`);
}

export const failuresText = (failures: readonly Failure[]): string | undefined =>
  failures.length === 0
    ? undefined
    : failures
        .map(({ number, atMs, backMs }) => `${number}@${atMs}ms${backMs === Infinity ? '' : `+${backMs - atMs}ms`}`)
        .join(',');

/** Whether the replay is of a fleet. */
export const isFleet = ({ hosts, hostMachines }: FleetOptions): boolean =>
  hosts !== undefined || hostMachines !== undefined;

/**
 * undefined: a single machine. Throws CliError for flags that only a fleet has.
 *
 * @param hosts the machines that it has
 */
export function fleetOf(
  options: FleetOptions,
  hosts: readonly Machine[],
  { seed, contentBytes }: Pick<FleetSettings, 'seed' | 'contentBytes'>,
): FleetSettings | undefined {
  const { router, failHost, roundTrip, network, callSize } = options;
  if (!isFleet(options)) {
    const [key] = Object.keys(given({ router, failHost, roundTrip, network, callSize }));
    if (key !== undefined) throw usage(`${flagOf(key)} needs --hosts or --host-machines: which machines the fleet has`);
    return undefined;
  }
  checkFailures('--fail-host', 'host', failHost ?? [], hosts.length);
  return {
    router: router ?? 'homes',
    failures: (failHost ?? []).map(({ number, atMs, backMs }) => ({ host: number, atMs, backMs })),
    roundTripMs: roundTrip ?? roundTripMsDefault,
    networkGBps: network ?? networkGBpsDefault,
    callBytes: callSize ?? callBytesDefault,
    contentBytes,
    seed,
  };
}

export function fleetSettings(fleet: FleetSettings | undefined, hosts: number): Record<string, SettingValue> {
  if (fleet === undefined) return {};
  const { router, roundTripMs, networkGBps, callBytes, failures } = fleet;
  const failed = failuresText(failures.map(({ host, atMs, backMs }) => ({ number: host, atMs, backMs })));
  return {
    hosts,
    router,
    round_trip_ms: roundTripMs,
    network_gbps: networkGBps,
    call_bytes: callBytes,
    ...given({ fail_host: failed }),
  };
}
