/** What an operator does with the functions of a running host: load, change and remove them. */
import { formatMs } from '../tools/index.ts';
import { Command, type AnyCommand } from './commander.ts';
import { asks, functionPath, request, shows, withHost } from './client.ts';
import { parsePairs } from './values.ts';

export function loadCommand(): AnyCommand {
  const command = new Command('load')
    .description(
      'Have a function of a running host loaded, so that the next call is warm. A folder that is new or was changed ' +
        'since the host started is read first.',
    )
    .argument('<name>', 'the function');
  return asks(command, async (host, name) => {
    const startMs = performance.now();
    await withHost(host, async (client) => await client.load(name));
    console.log(`loaded ${name} in ${formatMs(performance.now() - startMs)}`);
  });
}

export function unloadCommand(): AnyCommand {
  const command = new Command('unload')
    .description(
      'Give the memory of a function on a running host back. The next call loads it again (see --unloaded of serve).',
    )
    .argument('<name>', 'the function');
  return asks(command, async (host, name) => {
    await withHost(host, async (client) => await client.unload(name));
    console.log(`unloaded ${name}`);
  });
}

export function setCommand(): AnyCommand {
  const command = new Command('set')
    .description(
      'Change settings of a function on a running host, at once and for good: turntable set my-model slo=50ms ' +
        'batching.max=4. An empty value (slo=) goes back to what was published. Later uploads keep what is set.',
    )
    .argument('<name>', 'the function')
    .argument('<key=value...>', 'settings as function.json has them, groups with a dot')
    .option('--version <version>', 'of this version only');
  return shows(
    command,
    async (client, name, words, { version }) => {
      const given = parsePairs(words, 'a setting', 'slo=250ms');
      const change = Object.fromEntries(Array.from(given, ([key, value]) => [key, value === '' ? null : value]));
      return await client.set(name, change, version);
    },
    (_, name, words) => `${name}: ${words.map((word) => word.replace(/=$/, ' as published')).join(', ')}`,
  );
}

export function rmCommand(): AnyCommand {
  const command = new Command('rm')
    .description('Remove an uploaded function, or one version of it, from a running host.')
    .argument('<name>', 'the function')
    .option('--version <version>', 'remove this version only');
  return asks(command, async (host, name, { version }) => {
    await request(host, functionPath('functions', name, version), { method: 'DELETE' });
    console.log(version === undefined ? `removed ${name}` : `removed ${name} version ${version}`);
  });
}
