import { Command } from 'commander';
import { addUrlFlag, hostAddress, withHost } from './client.ts';
import { formatMs } from '../tools/index.ts';

export function loadCommand(): Command {
  const command = new Command('load')
    .description(
      'Have a function of a running host loaded, so that the next call is warm. A folder that is new or was changed ' +
        'since the host started is read first.',
    )
    .argument('<name>', 'the function');
  addUrlFlag(command).action(async (name: string, options: { url: string }) => {
    const startMs = performance.now();
    await withHost(hostAddress(options.url), async (client) => await client.load(name));
    console.log(`loaded ${name} in ${formatMs(performance.now() - startMs)}`);
  });
  return command;
}

export function unloadCommand(): Command {
  const command = new Command('unload')
    .description(
      'Give the memory of a function on a running host back. The next call loads it again (see --unloaded of serve).',
    )
    .argument('<name>', 'the function');
  addUrlFlag(command).action(async (name: string, options: { url: string }) => {
    await withHost(hostAddress(options.url), async (client) => await client.unload(name));
    console.log(`unloaded ${name}`);
  });
  return command;
}
