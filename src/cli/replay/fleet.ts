/** `--hosts` and what goes with it: a replay over the hosts of a fleet. */
import { Command, InvalidArgumentError, type OptionsOf } from '../commander.ts';
import { fleetRouters, type FleetSettings, type HostFailure } from '../../replay/index.ts';
import type { SettingValue } from '../../report/index.ts';
import { given } from '../../tools/index.ts';
import { usage } from '../error.ts';
import { flagOf, oneOf, parseBytes, parseCount, parseDurationMs, parsePositive } from '../values.ts';

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
      '--router <how>',
      `which host runs a call: ${fleetRouters.join(', ')}; homes where nothing is said`,
      oneOf(fleetRouters),
    )
    .option(
      '--fail-host <host@time+time>',
      'a host ends without a word: 3@60s; 3@60s+30s comes back after 30 s. Several by commas',
      parseFailures,
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

/** '3@60s', '3@60s+30s,0@90s'. */
export function parseFailures(text: string): HostFailure[] {
  const failures = text.split(',').map((part) => {
    const [, host, at = '', away] = /^\s*(\d+)@([^+]+)(?:\+(.+))?$/.exec(part) ?? [];
    if (host === undefined)
      throw new InvalidArgumentError(`'${part}' is no failure of a host such as 3@60s or 3@60s+30s.`);
    const atMs = parseDurationMs(at);
    return { host: Number(host), atMs, backMs: away === undefined ? Infinity : atMs + parseDurationMs(away) };
  });
  for (const [index, { host, atMs }] of failures.entries()) {
    if (failures.slice(0, index).some((other) => other.host === host && other.backMs > atMs)) {
      throw new InvalidArgumentError(`host ${host} fails again before it is back.`);
    }
  }
  return failures;
}

/** undefined: a single machine. Throws CliError for flags that only a fleet has. */
export function fleetOf(
  options: FleetOptions,
  { seed, contentBytes }: Pick<FleetSettings, 'seed' | 'contentBytes'>,
): FleetSettings | undefined {
  const { hosts, router, failHost, roundTrip, network, callSize } = options;
  if (hosts === undefined) {
    const [key] = Object.keys(given({ router, failHost, roundTrip, network, callSize }));
    if (key !== undefined) throw usage(`${flagOf(key)} needs --hosts: how many machines the fleet has`);
    return undefined;
  }
  const wrong = failHost?.find(({ host }) => host >= hosts);
  if (wrong !== undefined) {
    throw usage(`--fail-host names host ${wrong.host}, but the hosts are 0 to ${hosts - 1}`);
  }
  return {
    hosts,
    router: router ?? 'homes',
    failures: failHost ?? [],
    roundTripMs: roundTrip ?? roundTripMsDefault,
    networkGBps: network ?? networkGBpsDefault,
    callBytes: callSize ?? callBytesDefault,
    contentBytes,
    seed,
  };
}

export function fleetSettings(fleet: FleetSettings | undefined): Record<string, SettingValue> {
  if (fleet === undefined) return {};
  const { hosts, router, roundTripMs, networkGBps, callBytes, failures } = fleet;
  const failed = failures.map(
    ({ host, atMs, backMs }) => `${host}@${atMs}ms${backMs === Infinity ? '' : `+${backMs - atMs}ms`}`,
  );
  return {
    hosts,
    router,
    round_trip_ms: roundTripMs,
    network_gbps: networkGBps,
    call_bytes: callBytes,
    ...given({ fail_host: failed.length === 0 ? undefined : failed.join(',') }),
  };
}
