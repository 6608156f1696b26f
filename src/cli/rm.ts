import { Command } from 'commander';
import { addUrlFlag, functionPath, hostAddress, request } from './client.ts';

export function rmCommand(): Command {
  const command = new Command('rm')
    .description('Remove an uploaded function, or one version of it, from a running host.')
    .argument('<name>', 'the function')
    .option('--version <version>', 'remove this version only');
  addUrlFlag(command).action(async (name: string, options: { url: string; version?: string }) => {
    await request(hostAddress(options.url), functionPath('functions', name, options.version), { method: 'DELETE' });
    console.log(options.version === undefined ? `removed ${name}` : `removed ${name} version ${options.version}`);
  });
  return command;
}
