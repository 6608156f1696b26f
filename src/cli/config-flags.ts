/** Flags for the host's configuration. */
import { Option, type AnyCommand } from './commander.ts';
import { configOptions, type ConfigInput, type ConfigOption } from '../host/index.ts';

/**
 * Adds `--config` and a flag for each option of the host that may have one, or for those with these paths.
 * @param others whether the other flags are taken as well, without a line in the help
 */
export function addConfigFlags<Made extends AnyCommand>(
  command: Made,
  paths?: readonly string[],
  others: 'refused' | 'hidden' = 'refused',
): Made {
  command.option('--config <file>', 'read this configuration file instead of wrangler-free-config/host.json');
  for (const option of configOptions()) {
    const flag = option.flags.at(-1);
    const isListed = paths?.includes(option.path) !== false;
    if (flag === undefined || (!isListed && others === 'refused')) continue;
    // Commander takes two long names for one option. It suggests only the second when one is mistyped: the one in use.
    const names = option.flags.join(', ');
    command.addOption(new Option(`${names} <${placeholder(option)}>`, describe(option)).hideHelp(!isListed));
  }
  if (others === 'hidden')
    command.addHelpText('after', '\nAll options of turntable serve count as well; turntable serve --help lists them.');
  return command;
}

/** The values of the flags, for `loadConfig`. */
export function configInputOf(command: AnyCommand): ConfigInput {
  const given = command.opts() as Record<string, string | undefined>;
  const flags: Record<string, string> = {};
  for (const option of configOptions()) {
    const flag = option.flags.at(-1);
    const value = flag === undefined ? undefined : given[camelCase(flag)];
    if (value !== undefined) flags[option.path] = value;
  }
  return { flags, file: given['config'] };
}

/** Commander stores `--cpu-idle` as `cpuIdle`. */
function camelCase(flag: string): string {
  return flag.replace(/^--/, '').replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function placeholder(option: ConfigOption): string {
  switch (option.kind) {
    case 'integer':
    case 'integer-or-auto':
      return 'number';
    case 'choice':
      return option.choices.join('|');
    case 'duration':
    case 'size':
    case 'folder':
    case 'list':
    case 'text':
      return option.kind;
  }
}

/** The first sentence of the description, and the default. */
function describe(option: ConfigOption): string {
  const [sentence = ''] = option.description.split(/(?<=\.)\s/);
  const text = sentence.replaceAll('`', '').replace(/\.$/, '');
  // As flags are described, but TCP stays TCP.
  const start = text.replace(/^[A-Z](?![A-Z])/, (letter) => letter.toLowerCase());
  return `${start} (default: ${String(option.default)})`;
}
