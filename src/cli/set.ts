import { Command } from 'commander';
import { addUrlFlag, hostAddress, withHost } from './client.ts';
import { parseSettings } from './publish.ts';

export function setCommand(): Command {
  const command = new Command('set')
    .description(
      'Change settings of a function on a running host, at once and for good: turntable set my-model slo=50ms ' +
        'batching.max=4. An empty value (slo=) goes back to what was published. Later uploads keep what is set.',
    )
    .argument('<name>', 'the function')
    .argument('<key=value...>', 'settings as function.json has them, groups with a dot')
    .option('--version <version>', 'of this version only')
    .option('--json', 'print the reply of the host as it is');
  addUrlFlag(command).action(
    async (name: string, words: string[], options: { url: string; version?: string; json?: boolean }) => {
      const settings = [...parseSettings(words, 'a setting')].map(([key, value]) => [key, value === '' ? null : value]);
      const changed = await withHost(
        hostAddress(options.url),
        async (client) => await client.set(name, Object.fromEntries(settings), options.version),
      );
      if (options.json === true) console.log(JSON.stringify(changed));
      else console.log(`${name}: ${words.map((word) => word.replace(/=$/, ' as published')).join(', ')}`);
    },
  );
  return command;
}
