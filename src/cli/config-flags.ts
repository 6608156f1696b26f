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
  for (const option of configOptions()) {
    const isListed = paths?.includes(option.path) !== false;
    if (option.flags.length === 0 || (!isListed && others === 'refused')) continue;
    // Commander takes two long names for one option. It suggests only the second when one is mistyped: the one in use.
    const names = option.flags.join(', ');
    const flag = new Option(`${names} ${placeholders[option.kind]}`, describe(option)).hideHelp(!isListed);
    // What an operator looks for is under a heading in a long list.
    command.addOption(paths === undefined ? flag.helpGroup(`${option.group}:`) : flag);
  }
  const config = new Option('--config <file>', 'configuration file, in place of wrangler-free-config/host.json');
  command.addOption(paths === undefined ? config.helpGroup('Files:') : config);
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
    const value = flag === undefined ? undefined : given[new Option(flag).attributeName()];
    if (value !== undefined) flags[option.path] = value;
  }
  return { flags, file: given['config'] };
}

const placeholders: Readonly<Record<ConfigOption['kind'], string>> = {
  integer: '<n>',
  boolean: '<true|false>',
  choice: '<choice>',
  duration: '<time>',
  size: '<size>',
  folder: '<folder>',
  file: '<file>',
  place: '<place>',
  list: '<list>',
  text: '<text>',
};

/** The first sentence of the description, the choices, and the default; docs/configuration.md has the rest. */
function describe({ description, choices, default: usual }: ConfigOption): string {
  const [sentence = ''] = description.split(/(?<=\.)\s/);
  const text = sentence.replaceAll('`', '').replace(/\.$/, '');
  // As flags are described, but TCP stays TCP.
  const start = text.replace(/^[A-Z](?![A-Z\d])/, (letter) => letter.toLowerCase());
  const facts = [
    ...(choices.length === 0 ? [] : [`choices: ${choices.join(', ')}`]),
    ...(String(usual) === '' ? [] : [`default: ${String(usual)}`]),
  ];
  return facts.length === 0 ? start : `${start} (${facts.join('; ')})`;
}
