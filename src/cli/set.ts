import { HostCommand, withHost } from './client.ts';
import { parsePairs } from './values.ts';

export function setCommand(): HostCommand {
  return new HostCommand('set')
    .description(
      'Change settings of a function on a running host, at once and for good: turntable set my-model slo=50ms ' +
        'batching.max=4. An empty value (slo=) goes back to what was published. Later uploads keep what is set.',
    )
    .argument('<name>', 'the function')
    .argument('<key=value...>', 'settings as function.json has them, groups with a dot')
    .option('--version <version>', 'of this version only')
    .option('--json', 'print the reply of the host as it is')
    .asks(async (host, name: string, words: string[], options: { version?: string; json?: boolean }) => {
      const settings = [...parsePairs(words, 'a setting', 'slo=250ms')].map(([key, value]) => [
        key,
        value === '' ? null : value,
      ]);
      const changed = await withHost(
        host,
        async (client) => await client.set(name, Object.fromEntries(settings), options.version),
      );
      if (options.json === true) console.log(JSON.stringify(changed));
      else console.log(`${name}: ${words.map((word) => word.replace(/=$/, ' as published')).join(', ')}`);
    });
}
