/** docs/configuration.md, written from the schema: `npm run docs`. */
import { allowedText, configOptions, readConfigSchema, type ConfigOption } from '../src/host/config/options.ts';

export function renderConfigurationPage(): string {
  const schema = readConfigSchema();
  const options = configOptions(schema);
  const lines = [
    '# Configuration',
    '',
    '<!-- Written by `npm run docs` from wrangler-free-config/host.schema.json; edit that file instead. -->',
    '',
    'Every option has a default, so a host needs no configuration. Where an option is set in several places, the last of',
    'these wins:',
    '',
    '1. the default,',
    '2. `wrangler-free-config/host.json` of the working directory, else the one that ships; `--config FILE` names another,',
    '3. the environment,',
    '4. flags of `turntable serve`.',
    '',
    schema.description ?? '',
    '',
    'Relative folders start from the project for defaults, from the file for what stands in a configuration file, and',
    'from the working directory for the environment and flags.',
    '',
    '| Option | Default | Allowed | Meaning | Environment and flag |',
    '| --- | --- | --- | --- | --- |',
    ...options.map(renderRow),
    '',
    '`TURNTABLE_PORT` with an address such as `tcp://10.0.0.1:8000`, as Kubernetes sets it for a service named',
    '`turntable`, is ignored.',
    '',
  ];
  return lines.join('\n');
}

function renderRow(option: ConfigOption): string {
  const cells = [
    `\`${option.path}\``,
    `\`${JSON.stringify(option.default)}\``,
    allowedText(option),
    option.description,
    [...option.environmentNames, ...option.flags].map((name) => `\`${name}\``).join(', '),
  ];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}
