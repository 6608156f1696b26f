import { functionPath, HostCommand, request } from './client.ts';

export function rmCommand(): HostCommand {
  return new HostCommand('rm')
    .description('Remove an uploaded function, or one version of it, from a running host.')
    .argument('<name>', 'the function')
    .option('--version <version>', 'remove this version only')
    .asks(async (host, name: string, options: { version?: string }) => {
      await request(host, functionPath('functions', name, options.version), { method: 'DELETE' });
      console.log(options.version === undefined ? `removed ${name}` : `removed ${name} version ${options.version}`);
    });
}
