/** Which version of a function answers: listing them, and moving the calls from one to another. */
import { Command, InvalidArgumentError, type AnyCommand } from './commander.ts';
import type { TrafficChange, TrafficInfo, VersionInfo } from '../client/index.ts';
import { shows } from './client.ts';
import { usage } from './error.ts';
import { formatBytes, formatMs } from '../tools/index.ts';
import { printable, renderTable, rounded } from './table.ts';

export function versionsCommand(): AnyCommand {
  const command = new Command('versions')
    .description('List the versions of a function on a running host, their share of the calls, and their answers.')
    .argument('<name>', 'the function');
  return shows(command, async (client, name) => await client.versions(name), versionsText);
}

export function promoteCommand(): AnyCommand {
  const command = new Command('promote')
    .description(
      'Give a version all calls of its function, or a part of them. The version is loaded and tried first. If half of ' +
        'its first calls fail, they go back to the version before it.',
    )
    .argument('<name>', 'the function')
    .argument('<version>', 'the version')
    .option('--percent <percent>', 'of the calls; the rest stays with the version that serves most', parsePercent, 100);
  return shows(
    command,
    async (client, name, version, { percent }) => await client.promote(name, version, percent),
    trafficText,
  );
}

export function rollbackCommand(): AnyCommand {
  const command = new Command('rollback')
    .description(
      'Give all calls of a function to the version that served before. Where a new version gets a part of them, that ' +
        'ends. The newer version stays.',
    )
    .argument('<name>', 'the function');
  let before: TrafficInfo;
  return shows(
    command,
    async (client, name) => {
      before = (await client.versions(name)).traffic;
      return await client.rollBack(name);
    },
    (traffic, name) => `${trafficText(traffic, name)} (before: ${trafficLines(before)[0]})`,
  );
}

export function splitCommand(): AnyCommand {
  const command = new Command('split')
    .description(
      'Divide the calls of a function over its versions: turntable split my-model 1=90 2=10. Shares are percentages ' +
        'that make 100.',
    )
    .argument('<name>', 'the function')
    .argument('[version=percent...]', 'shares of the versions; what is left out gets none')
    .option('--key <header>', 'calls with the same value of this header go to the same version; "none" ends that')
    .option('--fallback <on|off>', 'whether a new version whose calls fail gives them back by itself');
  return shows(
    command,
    async (client, name, words, options) => await client.changeTraffic(name, splitAsked(words, options)),
    trafficText,
  );
}

function splitAsked(
  words: readonly string[],
  { key, fallback }: { readonly key?: string; readonly fallback?: string },
): TrafficChange {
  if (words.length === 0 && key === undefined && fallback === undefined) {
    throw usage('split takes shares such as 1=90 2=10, --key or --fallback');
  }
  if (fallback !== undefined && fallback !== 'on' && fallback !== 'off') {
    throw usage(`--fallback is "${fallback}", but must be on or off`);
  }
  return {
    ...(words.length > 0 ? { shares: Object.fromEntries(parseShares(words)) } : {}),
    ...(key === undefined ? {} : { key: key === 'none' ? null : key }),
    ...(fallback === undefined ? {} : { fallback: fallback === 'on' }),
  };
}

function parseShares(words: readonly string[]): Map<string, number> {
  return new Map(
    words.map((word) => {
      const [, version, percent] = /^(.+)=(\d+(?:\.\d+)?)%?$/.exec(word) ?? [];
      if (version === undefined) throw usage(`"${word}" is no share, which looks like 2=10`);
      return [version, Number(percent)];
    }),
  );
}

function parsePercent(text: string): number {
  const percent = Number(text.replace(/%$/, ''));
  if (!(percent > 0 && percent <= 100)) throw new InvalidArgumentError('It must be a percentage above 0, up to 100.');
  return percent;
}

const trafficText = (traffic: TrafficInfo, name: string): string => `${name}: ${trafficLines(traffic).join('\n')}`;

/** The versions as a table, and what there is to know about their calls below it. */
export function versionsText({
  versions,
  traffic,
}: {
  readonly versions: readonly VersionInfo[];
  readonly traffic: TrafficInfo;
}): string {
  const columns = ['VERSION', '>CALLS', 'STATE', '>SLO', '>MODEL', 'PUBLISHED', '>ANSWERED', '>IN SLO', 'NOTE'];
  const rows = versions.map((each) => {
    const { in_slo: good = 0, late = 0, failed = 0 } = each.answers;
    const ended = good + late + failed;
    return [
      each.version,
      each.percent === 0 ? '' : `${rounded(each.percent)}%`,
      each.state,
      typeof each['slo_ms'] === 'number' ? formatMs(each['slo_ms']) : '',
      typeof each['bytes'] === 'number' ? formatBytes(each['bytes']) : '',
      each.published_at.slice(0, 16).replace('T', ' '),
      String(ended),
      ended === 0 ? '' : `${rounded((100 * good) / ended)}%`,
      noteOf(each, traffic),
    ];
  });
  const more = trafficLines(traffic).slice(1);
  return [renderTable(columns, rows), ...(more.length === 0 ? [] : ['', ...more])].join('\n');
}

function noteOf({ version, on_trial: onTrial, reason }: VersionInfo, { fell_back: fell }: TrafficInfo): string {
  if (typeof reason === 'string') return printable(reason);
  if (onTrial) return 'on trial';
  return fell?.version === version ? `taken out: ${printable(fell.reason)}` : '';
}

/** The shares in the first line, what else decides in the others. */
function trafficLines({ shares, key, fallback }: TrafficInfo): string[] {
  const parts = Object.entries(shares).map(([version, percent]) => `version ${version} ${rounded(percent)}%`);
  return [
    parts.join(', '),
    ...(key === null || parts.length === 1 ? [] : [`calls with the same ${key} go to the same version`]),
    ...(fallback ? [] : ['a version whose calls fail is not taken out by itself']),
  ];
}
