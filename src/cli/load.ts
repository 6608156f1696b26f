import { HostCommand, withHost } from './client.ts';
import { formatMs } from '../tools/index.ts';

export function loadCommand(): HostCommand {
  return new HostCommand('load')
    .description(
      'Have a function of a running host loaded, so that the next call is warm. A folder that is new or was changed ' +
        'since the host started is read first.',
    )
    .argument('<name>', 'the function')
    .asks(async (host, name: string) => {
      const startMs = performance.now();
      await withHost(host, async (client) => await client.load(name));
      console.log(`loaded ${name} in ${formatMs(performance.now() - startMs)}`);
    });
}

export function unloadCommand(): HostCommand {
  return new HostCommand('unload')
    .description(
      'Give the memory of a function on a running host back. The next call loads it again (see --unloaded of serve).',
    )
    .argument('<name>', 'the function')
    .asks(async (host, name: string) => {
      await withHost(host, async (client) => await client.unload(name));
      console.log(`unloaded ${name}`);
    });
}
